// Memory is used after cudaFree.
// Expected: out_of_bounds
// Fast mode: out_of_bounds
__global__ void kernel(const float* scratch, float* y) {
    y[threadIdx.x] = scratch[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    float* scratch = nullptr;
    cudaMalloc(&scratch, 1024);
    cudaMemset(scratch, 0, 1024);
    cudaFree(scratch);
    kernel<<<1, 32>>>(scratch, y.data_ptr<float>());
}
