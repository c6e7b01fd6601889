// A barrier of the grid made of an atomic and a volatile poll.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    if (threadIdx.x == 0) y[blockIdx.x] = x[blockIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(flags, 1);
        while (*(volatile int*)flags < int(gridDim.x)) {
        }
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) y[64 + blockIdx.x] = y[(blockIdx.x + 1) % gridDim.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<4, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
