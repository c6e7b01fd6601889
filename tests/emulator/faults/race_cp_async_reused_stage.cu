// A stage is filled again before all have read it.
// Expected: data_race
#include <cuda_pipeline.h>
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        __pipeline_memcpy_async(&s[threadIdx.x], &x[64 * i + threadIdx.x], 4);  // HERE
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        sum += s[63 - threadIdx.x];  // HERE
    }
    y[threadIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
