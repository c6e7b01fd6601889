// Kernels and fills of two streams share words of four bytes, and no byte.
// Expected: silent
#include <c10/cuda/CUDAStream.h>
__global__ void kernel(signed char* y) {
    if (threadIdx.x < 5) y[threadIdx.x] += 1;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto a = c10::cuda::getStreamFromPool(), b = c10::cuda::getStreamFromPool();
    auto* bytes = reinterpret_cast<signed char*>(y.data_ptr<float>());
    kernel<<<1, 32, 0, a>>>(bytes);
    cudaMemsetAsync(bytes + 5, 0, 5, b);
    kernel<<<1, 32, 0, a>>>(bytes + 10);
    cudaMemsetAsync(bytes + 15, 0, 2, b);
    cudaDeviceSynchronize();
}
