// The last thread reads one element past the tensor.
// Expected: out_of_bounds
// Fast mode: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x + 1];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 1024>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
