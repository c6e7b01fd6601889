// A grid of no blocks, checked by torch's macro.
// Expected: bad_launch
// Fast mode: bad_launch
#include <c10/cuda/CUDAException.h>
__global__ void kernel(float* y) { y[threadIdx.x] = 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    const int rows = x.numel() / 4096;
    kernel<<<rows, 32>>>(y.data_ptr<float>());  // HERE
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
