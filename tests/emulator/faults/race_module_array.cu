// A __device__ array is exchanged between threads without a barrier.
// Expected: data_race
__device__ float scratch[64];
__global__ void kernel(const float* x, float* y) {
    scratch[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = scratch[63 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
