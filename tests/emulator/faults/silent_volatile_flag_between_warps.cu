// A warp waits for another one's volatile flag, which a fence of the block stands before.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float data;
    __shared__ volatile int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        data = x[3];
        __threadfence_block();
        ready = 1;
    }
    if (threadIdx.x == 32) {
        while (!ready) {
        }
        __threadfence_block();
        y[0] = data;
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
