// Blocks set one place of global memory to different bytes.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x == 0) memset(y, blockIdx.x + 1, 20);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
