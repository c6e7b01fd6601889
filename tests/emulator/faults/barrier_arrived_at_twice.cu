// The producer arrives at a named barrier again before the consumer has come to it.
// Expected: divergent_barrier
// Fast mode: divergent_barrier
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[32];
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x < 32) {
            s[threadIdx.x] = x[32 * i + threadIdx.x];
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");  // HERE
            y[32 * i + threadIdx.x] = s[63 - threadIdx.x];
        }
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
