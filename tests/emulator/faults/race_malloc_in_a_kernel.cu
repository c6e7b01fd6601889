// Threads exchange values through memory from malloc without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float* buffer;
    if (threadIdx.x == 0) buffer = static_cast<float*>(malloc(64 * sizeof(float)));
    __syncthreads();
    buffer[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = buffer[63 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
