// The first block sets a volatile flag for all others, which mostly find it set.
// Expected: silent
__global__ void kernel(float* y, volatile int* flag) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *flag = 7;
    if (threadIdx.x == 0) {
        int seen;
        while ((seen = *flag) == 0) {
        }
        y[blockIdx.x] = seen;
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flag = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<16, 32>>>(y.data_ptr<float>(), flag.data_ptr<int>());
}
