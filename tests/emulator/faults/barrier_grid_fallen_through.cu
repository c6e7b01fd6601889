// Some threads of a block fall through to the end beside grid.sync().
// Expected: divergent_barrier
// Fast mode: divergent_barrier
#include <cooperative_groups.h>
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x < 16) {
        y[threadIdx.x] = x[threadIdx.x];
        cooperative_groups::this_grid().sync();  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    void* arguments[] = {&from, &to};
    cudaLaunchCooperativeKernel(kernel, dim3(1), dim3(32), arguments);
}
