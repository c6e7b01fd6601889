// A block sum that is called twice and protects its buffer by a barrier of its own.
// Expected: silent
__device__ float block_sum(float v) {
    __shared__ float sums[32];
    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0.f;
    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
__global__ void kernel(const float* x, float* y) {
    const float mean = block_sum(x[threadIdx.x]) / blockDim.x;
    const float d = x[threadIdx.x] - mean;
    y[threadIdx.x] = d * rsqrtf(block_sum(d * d) / blockDim.x);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
