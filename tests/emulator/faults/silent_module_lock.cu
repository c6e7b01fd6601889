// A lock and what it guards are __device__ variables.
// Expected: silent
__device__ int lock = 0;
__device__ float total;
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x) return;
    while (atomicCAS(&lock, 0, 1) != 0) {
    }
    __threadfence();
    total += x[blockIdx.x];
    __threadfence();
    atomicExch(&lock, 0);
    y[blockIdx.x] = x[blockIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<16, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
