// Two halves share a word: between two writers of one of them comes a writer of the other.
// Expected: data_race
#include <cuda_fp16.h>
__global__ void kernel(const half* x, half* y) {
    if (threadIdx.x < 3) y[threadIdx.x % 2] = x[2 * threadIdx.x + 3];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 64>>>(reinterpret_cast<half*>(x.data_ptr()), reinterpret_cast<half*>(y.data_ptr()));
}
