// Blocks count with an atomic that reaches one block only.
// Expected: data_race
__global__ void kernel(const float* x, float* y, int* flags) {
    atomicAdd_block(flags, 1);  // HERE
    y[threadIdx.x] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
