// A pointer goes past the end of a __device__ array.
// Expected: out_of_bounds
__device__ float scratch[60];
__global__ void kernel(const float* x, float* y) {
    float* p = scratch;
    p[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = 1.f;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
