// A __device__ variable without a value begins as zero.
// Expected: silent
__device__ unsigned histogram[8];
__global__ void kernel(const float* x, float* y) {
    atomicAdd(&histogram[threadIdx.x % 8], 1u);
    __syncthreads();
    if (threadIdx.x < 8) y[threadIdx.x] = float(histogram[threadIdx.x]);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
