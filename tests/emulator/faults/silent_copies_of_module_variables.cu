// Module variables are set, read and found by name, in the order of the default stream; a copy too large is refused.
// Expected: silent
__device__ float sums[64];
__constant__ float weights[64];
__global__ void kernel(const float* x, float* y) {
    sums[threadIdx.x] += weights[threadIdx.x] * x[threadIdx.x];
    y[threadIdx.x] = sums[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    float host[65] = {1, 2, 3};
    size_t bytes = 0;
    void* address = nullptr;
    TORCH_CHECK(cudaMemcpyToSymbol(weights, host, 64 * sizeof(float)) == cudaSuccess);
    TORCH_CHECK(cudaMemcpyToSymbol(sums, host, sizeof host) == cudaErrorInvalidValue);
    TORCH_CHECK(cudaMemcpyToSymbol(sums, host, 4, 64 * sizeof(float)) == cudaErrorInvalidValue);
    TORCH_CHECK(cudaGetSymbolSize(&bytes, sums) == cudaSuccess && bytes == 64 * sizeof(float));
    TORCH_CHECK(cudaGetSymbolAddress(&address, sums) == cudaSuccess);
    cudaMemset(address, 0, bytes);
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
    cudaMemcpyFromSymbol(host, sums, bytes);
    TORCH_CHECK(cudaGetLastError() == cudaErrorInvalidValue && host[1] == 2);
}
