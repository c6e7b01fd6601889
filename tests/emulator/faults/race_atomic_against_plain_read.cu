// A sum made with atomics is read without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[threadIdx.x]);  // HERE
    y[threadIdx.x] = sum;  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
