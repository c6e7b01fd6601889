// A loop with <= writes one element past the tensor.
// Expected: out_of_bounds
// Fast mode: out_of_bounds
__global__ void kernel(float* y, int n) {
    for (int i = threadIdx.x; i <= n; i += blockDim.x) y[i] = 1.f;  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 128>>>(y.data_ptr<float>(), y.numel()); }
