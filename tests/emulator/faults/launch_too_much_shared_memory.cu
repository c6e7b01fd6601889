// 64 KB of dynamic shared memory without cudaFuncSetAttribute.
// Expected: bad_launch
// Fast mode: bad_launch
__global__ void kernel(float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = 1.f;
    y[threadIdx.x] = s[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 32, 65536>>>(y.data_ptr<float>());  // HERE
}
