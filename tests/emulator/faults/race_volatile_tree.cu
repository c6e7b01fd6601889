// A tree over volatile shared memory without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ volatile float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + half];  // HERE
    }
    if (threadIdx.x == 0) y[0] = s[0];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
