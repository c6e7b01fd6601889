// Volatile data of another block, which nothing orders.
// Expected: data_race
__global__ void kernel(const float* x, volatile float* y) {
    if (threadIdx.x == 0) y[blockIdx.x] = x[blockIdx.x];  // HERE
    if (threadIdx.x == 0) y[64 + blockIdx.x] = y[(blockIdx.x + 3) % 4] + 1.f;  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
