// Blocks hand volatile words to each other, and nothing orders them: no one waits for a word.
// Expected: data_race
__global__ void kernel(const float* x, volatile float* y) {
    y[blockIdx.x * 32 + threadIdx.x] = x[threadIdx.x];  // HERE
    y[512 + blockIdx.x * 32 + threadIdx.x] = y[(blockIdx.x + 1) % 4 * 32 + threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
