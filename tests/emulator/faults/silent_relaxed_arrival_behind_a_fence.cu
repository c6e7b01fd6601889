// A relaxed arrival at the barrier of a cluster's other block, behind a fence, which orders the write before it.
// Expected: silent
#include <cooperative_groups.h>
__device__ unsigned address_in_block(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__global__ void kernel(const float* x, float* y) {
    __shared__ unsigned long long barrier;
    __shared__ float s;
    const auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(address_in_block(&barrier)) : "memory");
    }
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        *cluster.map_shared_rank(&s, 1) = x[3];
        unsigned there;
        __threadfence();
        asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(there) : "r"(address_in_block(&barrier)));
        asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" : : "r"(there) : "memory");
    }
    if (cluster.block_rank() == 1 && threadIdx.x == 0) {
        unsigned over = 0;
        while (!over) {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; "
                         "selp.b32 %0, 1, 0, p; }"
                         : "=r"(over) : "r"(address_in_block(&barrier)) : "memory");
        }
        y[0] = s;
    }
    cluster.sync();
}
void run(torch::Tensor x, torch::Tensor y) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(2);
    config.blockDim = dim3(32);
    config.attrs = &cluster;
    config.numAttrs = 1;
    const float* from = x.data_ptr<float>();
    TORCH_CHECK(cudaLaunchKernelEx(&config, kernel, from, y.data_ptr<float>()) == cudaSuccess);
}
