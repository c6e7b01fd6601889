// Some threads reach the end of the kernel without the barrier.
// Expected: divergent_barrier
// Fast mode: divergent_barrier
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x < 40) {
        y[threadIdx.x] = x[threadIdx.x];
        __syncthreads();  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
