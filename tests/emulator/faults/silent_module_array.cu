// Each thread has its own element of a __device__ array, and a __constant__ one is read by all.
// Expected: silent
__device__ float scratch[2][64];
__constant__ float weights[4] = {1, 2, 3, 4};
__global__ void kernel(const float* x, float* y) {
    scratch[blockIdx.x][threadIdx.x] = x[threadIdx.x] * weights[threadIdx.x % 4];
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = scratch[blockIdx.x][63 - threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<2, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
