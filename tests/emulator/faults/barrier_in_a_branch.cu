// The barrier stands in a branch that only some threads take.
// Expected: divergent_barrier
// Fast mode: divergent_barrier
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 32) {
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x];
    }
    __syncthreads();  // HERE
    y[threadIdx.x + 64] = s[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
