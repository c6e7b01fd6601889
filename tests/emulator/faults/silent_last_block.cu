// The last block to finish adds the partial sums of all.
// Expected: silent
__device__ unsigned finished = 0;
__global__ void kernel(const float* x, volatile float* parts, float* y) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++) sum += parts[i];
        y[0] = sum;
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto parts = torch::empty({32}, x.options());
    kernel<<<32, 64>>>(x.data_ptr<float>(), parts.data_ptr<float>(), y.data_ptr<float>());
}
