// memset clears what threads then add to.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ int bins[25];
    if (threadIdx.x == 0) memset(bins, 0, sizeof(bins));
    __syncthreads();
    atomicAdd(&bins[threadIdx.x % 25], 1);
    __syncthreads();
    if (threadIdx.x < 25) y[threadIdx.x] = float(bins[threadIdx.x]);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
