// The same tree over volatile shared memory with barriers.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ volatile float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) s[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + half];
    }
    if (threadIdx.x == 0) y[0] = s[0];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
