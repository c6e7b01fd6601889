// Each element is read and written by one thread only, over several launches.
// Expected: silent
#include <c10/cuda/CUDAException.h>
__global__ void kernel(float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = y[i] * 2 + 1;
}
void run(torch::Tensor x, torch::Tensor y) {
    for (int i = 0; i < 3; i++) kernel<<<3 - i, 96>>>(y.data_ptr<float>(), y.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
