// Warps exchange volatile words of global memory without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    volatile float* v = y;
    v[threadIdx.x] = x[threadIdx.x];  // HERE
    y[256 + threadIdx.x] = v[threadIdx.x ^ 64];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
