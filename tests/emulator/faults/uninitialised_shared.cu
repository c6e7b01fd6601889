// Only some warps store their sum, and all sums are read.
// Expected: uninitialised_read
__global__ void kernel(const float* x, float* y) {
    __shared__ float sums[32];
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) y[threadIdx.x] = sums[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
