// All blocks add to a __device__ variable without an atomic.
// Expected: data_race
__device__ float total;
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x == 0) total += x[blockIdx.x];  // HERE
    y[threadIdx.x] = 1.f;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
