// One thread waits for the earlier launch, and a barrier of its cluster, or of the grid, stands before the others' accesses.
// Expected: silent
#include <cooperative_groups.h>
__global__ void first(float* y) { y[blockIdx.x * 64 + threadIdx.x] += 1.f; }
__global__ void in_clusters(float* y) {
    auto cluster = cooperative_groups::this_cluster();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) cudaGridDependencySynchronize();
    cluster.sync();
    y[blockIdx.x * 64 + threadIdx.x] += 1.f;
}
__global__ void in_a_grid(float* y) {
    if (blockIdx.x == 0 && threadIdx.x == 0) cudaGridDependencySynchronize();
    cooperative_groups::this_grid().sync();
    y[blockIdx.x * 64 + threadIdx.x] += 1.f;
}
void run(torch::Tensor x, torch::Tensor y) {
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(4);
    config.blockDim = dim3(64);
    config.attrs = attributes;
    config.numAttrs = 2;
    first<<<4, 64>>>(y.data_ptr<float>());
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 2;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchKernelEx(&config, in_clusters, y.data_ptr<float>());
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    cudaLaunchKernelEx(&config, in_a_grid, y.data_ptr<float>());
}
