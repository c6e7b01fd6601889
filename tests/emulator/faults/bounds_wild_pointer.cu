// Pointer arithmetic that leaves all allocations.
// Expected: out_of_bounds
// Fast mode: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    y[0] = x[1ull << 40];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
