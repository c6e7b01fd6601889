// One thread computes, a barrier, all read, a barrier, it computes again.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float2 stats;
    for (int row = 0; row < 3; row++) {
        if (threadIdx.x == 0) stats = make_float2(x[row], x[row + 1]);
        __syncthreads();
        y[row * 64 + threadIdx.x] = stats.x + stats.y * x[threadIdx.x];
        __syncthreads();
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
