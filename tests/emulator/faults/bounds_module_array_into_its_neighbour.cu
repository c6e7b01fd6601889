// A pointer runs from one __device__ array on to the next.
// Expected: out_of_bounds
__device__ float left[64], right[64];
__global__ void kernel(const float* x, float* y) {
    float* cell = (threadIdx.x % 2 ? left : right) + threadIdx.x;
    cell[-1] = x[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
