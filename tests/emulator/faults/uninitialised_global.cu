// Scratch from torch::empty is accumulated into.
// Expected: uninitialised_read
__global__ void kernel(const float* x, float* scratch, float* y) {
    scratch[threadIdx.x] += x[threadIdx.x];  // HERE
    y[threadIdx.x] = scratch[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto scratch = torch::empty({64}, x.options());
    kernel<<<1, 64>>>(x.data_ptr<float>(), scratch.data_ptr<float>(), y.data_ptr<float>());
}
