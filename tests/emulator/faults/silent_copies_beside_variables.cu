// Copies of a variable that a macro declares, beside one that is named, and from a table of the host's.
// Expected: silent
#include <c10/cuda/CUDAException.h>
#define WEIGHTS(name) __constant__ float name[64]
__constant__ float factors[4];
WEIGHTS(weights);
static float table[64];
__device__ float scratch[4];
__global__ void kernel(const float* x, float* y) {
    const int i = threadIdx.x;
    if (i < 4) scratch[i] = factors[i];
    __syncthreads();
    y[i] = x[i] * weights[i] + scratch[i % 4];
}
void run(torch::Tensor x, torch::Tensor y) {
    for (int i = 0; i < 64; i++) table[i] = i;
    C10_CUDA_CHECK(cudaMemcpyToSymbol(weights, table, sizeof table));
    C10_CUDA_CHECK(cudaMemcpyToSymbol(factors, table, sizeof factors));
    void* place;
    C10_CUDA_CHECK(cudaGetSymbolAddress(&place, weights));
    C10_CUDA_CHECK(cudaMemcpy(place, table, sizeof table, cudaMemcpyHostToDevice));
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
