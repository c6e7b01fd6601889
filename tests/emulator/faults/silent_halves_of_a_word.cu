// Two threads write the halves of each word.
// Expected: silent
#include <cuda_fp16.h>
__global__ void kernel(const half* x, half* y) {
    __shared__ half s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
    __syncthreads();
    s[threadIdx.x ^ 1] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 64>>>(reinterpret_cast<half*>(x.data_ptr()), reinterpret_cast<half*>(y.data_ptr()));
}
