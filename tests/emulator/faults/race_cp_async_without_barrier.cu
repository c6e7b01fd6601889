// Each thread waits for its own copy and reads another one's.
// Expected: data_race
#include <cuda_pipeline.h>
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  // HERE
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[63 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
