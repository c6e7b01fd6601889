// A scan that changes its buffers after each step.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[2][64];
    int from = 0;
    s[0][threadIdx.x] = x[threadIdx.x];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        const float v = s[from][threadIdx.x];
        s[1 - from][threadIdx.x] = threadIdx.x >= step ? v + s[from][threadIdx.x - step] : v;
        from = 1 - from;
    }
    __syncthreads();
    y[threadIdx.x] = s[from][threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
