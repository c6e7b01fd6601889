// A lock between blocks is taken with atomicCAS_block.
// Expected: data_race
__global__ void kernel(const float* x, float* y, int* flags) {
    if (threadIdx.x) return;
    while (atomicCAS_block(flags, 0, 1) != 0) {  // HERE
    }
    __threadfence();
    y[0] += x[blockIdx.x];  // HERE
    __threadfence();
    atomicExch(flags, 0);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
