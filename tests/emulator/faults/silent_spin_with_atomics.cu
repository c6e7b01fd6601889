// Blocks wait for a counter that atomics increase, as hand-written grid barriers do.
// Expected: silent
__global__ void kernel(const float* x, float* parts, int* count, float* y) {
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < (int)gridDim.x) {
        }
    }
    __syncthreads();
    if (threadIdx.x < gridDim.x) y[blockIdx.x * 32 + threadIdx.x] = parts[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto parts = torch::empty({8}, x.options());
    auto count = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<8, 32>>>(x.data_ptr<float>(), parts.data_ptr<float>(), count.data_ptr<int>(), y.data_ptr<float>());
}
