// All threads write the same value to one word and read it.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float n;
    n = x[5];
    y[threadIdx.x] = n + x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<2, 128>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
