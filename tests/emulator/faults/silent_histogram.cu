// A histogram in shared memory, added to the global one with atomics.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[int(x[threadIdx.x]) % 16], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&flags[threadIdx.x], bins[threadIdx.x]);
    if (threadIdx.x == 0) y[blockIdx.x] = 1.f;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<4, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
