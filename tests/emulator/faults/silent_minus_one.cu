// Integers that are all ones are values, not poison.
// Expected: silent
__global__ void kernel(const int* x, const signed char* bytes, float* y) {
    y[threadIdx.x] = x[threadIdx.x] + bytes[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::full({64}, -1, x.options().dtype(torch::kInt));
    auto bytes = torch::full({64}, -91, x.options().dtype(torch::kInt8));
    kernel<<<1, 64>>>(ints.data_ptr<int>(), reinterpret_cast<const signed char*>(bytes.data_ptr<int8_t>()),
                      y.data_ptr<float>());
}
