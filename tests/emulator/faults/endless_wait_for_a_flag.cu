// Threads wait for a flag that nobody sets.
// Expected: endless_kernel
// Fast mode: endless_kernel
__global__ void kernel(volatile int* flag, float* y) {
    while (*flag == 0) {
    }
    y[0] = 1.f;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flag = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<2, 32>>>(flag.data_ptr<int>(), y.data_ptr<float>());
}
