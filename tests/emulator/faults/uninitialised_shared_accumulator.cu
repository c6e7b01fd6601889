// Atomics count on a shared word that nobody set to zero.
// Expected: uninitialised_read
__global__ void kernel(const float* x, float* y) {
    __shared__ float sum;
    atomicAdd(&sum, x[threadIdx.x]);  // HERE
    __syncthreads();
    if (threadIdx.x == 0) y[0] = sum;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
