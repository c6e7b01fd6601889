// memcpy takes more than the tensor has.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x == 0) std::memcpy(y + 1020, x, 24);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
