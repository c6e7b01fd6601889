// Atomics and a fence of system scope, as one that talks to the host has.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        y[0] = x[5];
        __threadfence_system();
        atomicExch_system(flags, 1);
    } else {
        while (atomicAdd_system(flags, 0) == 0) {
        }
        __threadfence_system();
        y[1] = y[0];
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
