// A first kernel leaves the last elements unwritten and a second reads them.
// Expected: uninitialised_read
__global__ void first(const float* x, float* scratch, int n) {
    if ((int)threadIdx.x < n) scratch[threadIdx.x] = x[threadIdx.x];
}
__global__ void second(const float* scratch, float* y) {
    y[threadIdx.x] = scratch[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    auto scratch = torch::empty({64}, x.options());
    first<<<1, 64>>>(x.data_ptr<float>(), scratch.data_ptr<float>(), 60);
    second<<<1, 64>>>(scratch.data_ptr<float>(), y.data_ptr<float>());
}
