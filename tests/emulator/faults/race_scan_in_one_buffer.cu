// A scan in one buffer, with one barrier where it needs two.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        if (threadIdx.x >= step) s[threadIdx.x] += s[threadIdx.x - step];  // HERE
    }
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
