// grid.sync() in a kernel launched with <<<>>>.
// Expected: divergent_barrier
// Fast mode: divergent_barrier
#include <cooperative_groups.h>
__global__ void kernel(float* y) {
    cooperative_groups::this_grid().sync();  // HERE
    y[threadIdx.x] = 1.f;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<2, 32>>>(y.data_ptr<float>()); }
