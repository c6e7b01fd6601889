// Each thread copies a uint4 of its own.
// Expected: silent
__global__ void kernel(const uint4* x, uint4* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<2, 32>>>(reinterpret_cast<const uint4*>(x.data_ptr<float>()), reinterpret_cast<uint4*>(y.data_ptr<float>()));
}
