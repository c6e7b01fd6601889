// Two stages of cp.async, each waited for and separated by a barrier.
// Expected: silent
#include <cuda_pipeline.h>
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[2][64];
    __pipeline_memcpy_async(&s[0][threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        if (i < 3) __pipeline_memcpy_async(&s[(i + 1) % 2][threadIdx.x], &x[64 * (i + 1) + threadIdx.x], 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += s[i % 2][63 - threadIdx.x];
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
