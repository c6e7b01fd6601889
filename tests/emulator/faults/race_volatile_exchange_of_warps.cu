// Two warps exchange volatile words without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ volatile float s[64];
    s[threadIdx.x] = x[threadIdx.x];  // HERE
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x ^ 32];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
