// Blocks write rows that overlap by one element.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    y[blockIdx.x * 31 + threadIdx.x] = x[threadIdx.x] + blockIdx.x;  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
