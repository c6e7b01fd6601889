// A histogram with atomics in shared and then in global memory.
// Expected: silent
__global__ void kernel(const float* x, int* bins) {
    __shared__ int mine[16];
    if (threadIdx.x < 16) mine[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&mine[(int)x[blockIdx.x * 128 + threadIdx.x] % 16], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
void run(torch::Tensor x, torch::Tensor y) {
    auto bins = torch::zeros({16}, x.options().dtype(torch::kInt));
    kernel<<<8, 128>>>(x.data_ptr<float>(), bins.data_ptr<int>());
    y.slice(0, 0, 16).copy_(bins);
}
