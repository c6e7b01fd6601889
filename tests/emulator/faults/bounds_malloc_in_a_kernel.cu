// One element more than malloc gave.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    float* own = static_cast<float*>(malloc(4 * sizeof(float)));
    for (int i = 0; i <= 4; i++) own[i] = x[i];  // HERE
    y[threadIdx.x] = own[threadIdx.x % 4];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
