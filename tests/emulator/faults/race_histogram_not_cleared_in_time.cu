// The bins are cleared by some threads and counted in by others without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ int bins[64];
    bins[threadIdx.x] = 0;  // HERE
    atomicAdd(&bins[63 - threadIdx.x], 1);  // HERE
    __syncthreads();
    y[threadIdx.x] = bins[threadIdx.x] + x[0];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
