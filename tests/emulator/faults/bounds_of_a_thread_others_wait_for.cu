// The thread that would set a flag leaves its memory before: the others wait in vain.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    __shared__ int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x == 32) {
        y[0] = x[1024];  // HERE
        atomicExch(&ready, 1);
    }
    if (threadIdx.x < 32) {
        while (atomicAdd(&ready, 0) == 0) {
        }
    }
    y[threadIdx.x] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
