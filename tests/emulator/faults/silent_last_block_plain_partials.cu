// The same with partial sums that are not volatile, read by the whole block.
// Expected: silent
__global__ void kernel(const float* x, float* parts, unsigned* finished, float* y) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        last = atomicAdd(finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    y[threadIdx.x] = parts[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto parts = torch::empty({32}, x.options());
    auto finished = torch::zeros({1}, x.options().dtype(torch::kInt));
    auto* counter = reinterpret_cast<unsigned*>(finished.data_ptr<int>());
    kernel<<<32, 32>>>(x.data_ptr<float>(), parts.data_ptr<float>(), counter, y.data_ptr<float>());
}
