// More undefined values than findings are kept are read and never used; then a thread leaves its memory.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    __shared__ float unwritten[64];
    volatile float* value = unwritten;
    (void)value[threadIdx.x];
    (void)value[threadIdx.x ^ 1];
    (void)value[threadIdx.x ^ 2];
    (void)value[threadIdx.x ^ 3];
    (void)value[threadIdx.x ^ 4];
    (void)value[threadIdx.x ^ 5];
    (void)value[threadIdx.x ^ 6];
    (void)value[threadIdx.x ^ 7];
    (void)value[threadIdx.x ^ 8];
    y[threadIdx.x] = x[threadIdx.x + 1024];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
