// A spin lock that is released by a volatile write behind a fence.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    if (threadIdx.x) return;
    while (atomicCAS(flags, 0, 1) != 0) {
    }
    __threadfence();
    y[0] += x[blockIdx.x];
    __threadfence();
    *(volatile int*)flags = 0;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<16, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
