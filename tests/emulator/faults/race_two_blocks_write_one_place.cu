// Blocks overlap by one element and write different values there.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    y[blockIdx.x * 31 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
