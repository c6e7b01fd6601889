// A single-pass scan: each block waits for the flag of the one before.
// Expected: silent
__global__ void kernel(const float* x, float* sums, int* flags, float* y) {
    if (threadIdx.x) return;
    float before = 0;
    if (blockIdx.x) {
        while (*(volatile int*)&flags[blockIdx.x - 1] == 0) {
        }
        __threadfence();
        before = sums[blockIdx.x - 1];
    }
    sums[blockIdx.x] = before + x[blockIdx.x];
    __threadfence();
    *(volatile int*)&flags[blockIdx.x] = 1;
    y[blockIdx.x] = before;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto sums = torch::empty({16}, x.options());
    auto flags = torch::zeros({16}, x.options().dtype(torch::kInt));
    kernel<<<16, 32>>>(x.data_ptr<float>(), sums.data_ptr<float>(), flags.data_ptr<int>(), y.data_ptr<float>());
}
