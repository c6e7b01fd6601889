// Threads go through a loop with a barrier a different number of times.
// Expected: divergent_barrier
// Fast mode: divergent_barrier
__global__ void kernel(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sum += x[i];
        __syncthreads();  // HERE
    }
    y[threadIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), 100); }
