// Mean and variance over warps, as layer norms have them.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float2 parts[2];
    float v = x[threadIdx.x], q = v * v;
    for (int o = 16; o; o /= 2) {
        v += __shfl_xor_sync(~0u, v, o);
        q += __shfl_xor_sync(~0u, q, o);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float2(v, q);
    __syncthreads();
    const float mean = (parts[0].x + parts[1].x) / 64;
    y[threadIdx.x] = (x[threadIdx.x] - mean) * rsqrtf((parts[0].y + parts[1].y) / 64 - mean * mean + 1e-5f);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
