// A tree reduction without a barrier between its levels.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[256];
    const unsigned t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];  // HERE
    }
    __syncthreads();
    if (t == 0) y[0] = s[0];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
