// The flag is polled, and the data behind it is volatile, too: without a fence either may be seen first.
// Expected: data_race
__global__ void kernel(const float* x, volatile float* y, volatile int* flag) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[5];  // HERE
        *flag = 1;
    } else {
        while (*flag == 0) {
        }
        y[blockIdx.x] = 2 * y[0];  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flag = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flag.data_ptr<int>());
}
