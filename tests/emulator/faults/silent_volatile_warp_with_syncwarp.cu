// Volatile shared memory within a warp, with __syncwarp() between the steps.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ volatile float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    for (int half = 16; half > 0; half /= 2) {
        __syncwarp();
        const float v = s[threadIdx.x ^ half];
        __syncwarp();
        s[threadIdx.x] = s[threadIdx.x] + v;
    }
    y[threadIdx.x] = s[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
