// The weight stayed on the CPU.
// Expected: host_pointer
// Fast mode: host_pointer
__global__ void kernel(const float* x, const float* w, float* y) {
    y[threadIdx.x] = x[threadIdx.x] * w[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    auto w = torch::ones({32});
    kernel<<<1, 32>>>(x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>());
}
