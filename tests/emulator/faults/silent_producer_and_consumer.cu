// Warps hand data over with named barriers.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[32];
    if (threadIdx.x < 32) {
        s[threadIdx.x] = x[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        y[threadIdx.x] = s[63 - threadIdx.x];
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
