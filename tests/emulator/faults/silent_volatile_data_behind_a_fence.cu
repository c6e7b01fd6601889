// Volatile data and a volatile flag, with a fence on either side; the flag and a counter are polled in turn.
// Expected: silent
__global__ void kernel(const float* x, volatile float* y, volatile int* flags) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[5];
        __threadfence();
        flags[0] = 1;
        flags[1] = 1;
    } else {
        while (flags[0] == 0 || flags[1] == 0) {
        }
        __threadfence();
        y[blockIdx.x] = 2 * y[0];
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flags = torch::zeros({2}, x.options().dtype(torch::kInt));
    kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags.data_ptr<int>());
}
