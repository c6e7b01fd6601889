// Threads of one block write the same half2, whose halves are copied one by one.
// Expected: data_race
#include <cuda_fp16.h>
__global__ void kernel(const half2* x, half2* y) {
    y[threadIdx.x % 4] = x[threadIdx.x % 8];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 64>>>(reinterpret_cast<half2*>(x.data_ptr()), reinterpret_cast<half2*>(y.data_ptr()));
}
