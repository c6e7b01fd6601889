// The last block's counter is a __device__ variable, the partial sums are plain.
// Expected: silent
__device__ unsigned finished = 0;
__global__ void kernel(const float* x, float* parts, float* y) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    y[threadIdx.x] = parts[threadIdx.x];
    if (threadIdx.x == 0) finished = 0;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto parts = torch::empty({32}, x.options());
    kernel<<<32, 32>>>(x.data_ptr<float>(), parts.data_ptr<float>(), y.data_ptr<float>());
}
