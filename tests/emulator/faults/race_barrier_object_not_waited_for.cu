// Threads arrive at a cuda::barrier and do not wait.
// Expected: data_race
#include <cuda/barrier>
__global__ void kernel(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> done;
    __shared__ float s[64];
    if (threadIdx.x == 0) init(&done, blockDim.x);
    __syncthreads();
    s[threadIdx.x] = x[threadIdx.x];  // HERE
    auto token = done.arrive();
    y[threadIdx.x] = s[63 - threadIdx.x];  // HERE
    done.wait(std::move(token));
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
