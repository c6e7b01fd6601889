// 2048 threads a block, and nobody looks at the error.
// Expected: bad_launch
// Fast mode: bad_launch
__global__ void kernel(float* y) { y[threadIdx.x] = 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 2048>>>(y.data_ptr<float>());  // HERE
}
