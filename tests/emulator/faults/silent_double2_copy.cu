// Each thread copies a double2 of its own.
// Expected: silent
__global__ void kernel(const double2* x, double2* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<2, 32>>>(reinterpret_cast<const double2*>(x.data_ptr<float>()), reinterpret_cast<double2*>(y.data_ptr<float>()));
}
