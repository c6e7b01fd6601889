// A block reads its cluster's other one, which ends when all have met again.
// Expected: silent
#include <cooperative_groups.h>
__global__ void kernel(const float* x, float* y) {
    __shared__ float s;
    const auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) s = x[blockIdx.x];
    cluster.sync();
    const unsigned other = 1 - cluster.block_rank();
    if (threadIdx.x == 0) y[blockIdx.x] = *cluster.map_shared_rank(&s, other);
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
