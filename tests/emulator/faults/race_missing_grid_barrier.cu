// Partial sums of all blocks are added without waiting for them.
// Expected: data_race
__global__ void kernel(const float* x, float* parts, float* y) {
    if (threadIdx.x == 0) parts[blockIdx.x] = x[blockIdx.x];  // HERE
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += parts[i];  // HERE
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto parts = torch::zeros({8}, x.options());
    kernel<<<8, 1>>>(x.data_ptr<float>(), parts.data_ptr<float>(), y.data_ptr<float>());
}
