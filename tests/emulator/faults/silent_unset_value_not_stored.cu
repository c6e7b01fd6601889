// A value that nobody wrote is read ahead of the test that drops it.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    if (threadIdx.x < 32) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float ahead = s[(threadIdx.x + 16) % 64];
    y[threadIdx.x] = threadIdx.x < 16 ? ahead : 0.f;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
