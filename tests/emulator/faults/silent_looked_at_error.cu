// A launch that cannot work is tried, the error looked at, and another one made.
// Expected: silent
#include <c10/cuda/CUDAException.h>
__global__ void kernel(float* y) { y[threadIdx.x] = 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 2048>>>(y.data_ptr<float>());
    if (cudaGetLastError() != cudaSuccess) kernel<<<2, 512>>>(y.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
