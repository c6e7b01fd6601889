// One byte past an allocation of 1001 bytes, within its last word.
// Expected: out_of_bounds
__global__ void kernel(const signed char* x, float* y) {
    y[0] = x[1001];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    auto bytes = torch::zeros({1001}, x.options().dtype(torch::kInt8));
    kernel<<<1, 1>>>(reinterpret_cast<const signed char*>(bytes.data_ptr<int8_t>()), y.data_ptr<float>());
}
