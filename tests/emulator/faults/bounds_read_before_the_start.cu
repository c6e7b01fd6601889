// A stencil reads the element before the first.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    const int i = threadIdx.x;
    y[i] = x[i - 1];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
