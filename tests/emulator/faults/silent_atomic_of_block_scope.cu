// Each block counts in a word of its own with atomics of block scope.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    atomicAdd_block(flags + blockIdx.x, 1);
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = float(flags[blockIdx.x]) + x[0];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
