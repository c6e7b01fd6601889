// A loop whose step is zero.
// Expected: endless_kernel
// Fast mode: endless_kernel
__global__ void kernel(const float* x, float* y, int n, int step) {
    float sum = 0;
    for (int i = 0; i < n; i += step) sum += x[i];  // HERE
    y[0] = sum;
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), 16, 0);
}
