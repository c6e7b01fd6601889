// __constant__ memory, a __device__ array and a table in the kernel.
// Expected: silent
#include <c10/cuda/CUDAException.h>
__constant__ float factors[4];
__device__ float scratch[64];
__global__ void kernel(const float* x, float* y) {
    const float table[4] = {1.f, 2.f, 3.f, 4.f};
    scratch[threadIdx.x] = x[threadIdx.x] * factors[threadIdx.x % 4];
    y[threadIdx.x] = scratch[threadIdx.x] + table[threadIdx.x % 4];
}
void run(torch::Tensor x, torch::Tensor y) {
    const float values[4] = {1.f, 2.f, 3.f, 4.f};
    C10_CUDA_CHECK(cudaMemcpyToSymbol(factors, values, sizeof values));
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
