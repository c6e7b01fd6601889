// A kernel writes a __constant__ variable through a pointer.
// Expected: write_to_constant
__constant__ float weights[4];
__global__ void kernel(const float* x, float* y) {
    float* w = weights + threadIdx.x;
    *w = x[threadIdx.x];  // HERE
    y[threadIdx.x] = 1.f;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 4>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
