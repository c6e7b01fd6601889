// Global memory used as scratch space without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x + 256] = y[255 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
