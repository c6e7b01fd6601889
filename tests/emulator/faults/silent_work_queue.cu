// Blocks take numbers from a counter until all work is done.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    __shared__ int mine;
    while (true) {
        if (threadIdx.x == 0) mine = atomicAdd(flags, 1);
        __syncthreads();
        const int row = mine;
        __syncthreads();
        if (row >= 12) return;
        y[32 * row + threadIdx.x] = x[32 * row + threadIdx.x];
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<3, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
