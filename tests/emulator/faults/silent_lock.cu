// A critical section under a lock made of atomicCAS and atomicExch.
// Expected: silent
__global__ void kernel(const float* x, int* lock, float* y) {
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    y[0] = y[0] + x[blockIdx.x];
    __threadfence();
    atomicExch(lock, 0);
}
void run(torch::Tensor x, torch::Tensor y) {
    auto lock = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<8, 32>>>(x.data_ptr<float>(), lock.data_ptr<int>(), y.data_ptr<float>());
}
