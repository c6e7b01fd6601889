// A bitonic sort in shared memory.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = -x[threadIdx.x];
    for (int size = 2; size <= 64; size *= 2) {
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            const int other = threadIdx.x ^ step;
            if (other > int(threadIdx.x)) {
                const float a = s[threadIdx.x], b = s[other];
                if ((a > b) == ((threadIdx.x & size) == 0)) {
                    s[threadIdx.x] = b;
                    s[other] = a;
                }
            }
        }
    }
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
