// Threads beyond the end return before a barrier that the others reach.
// Expected: silent
__global__ void kernel(const float* x, float* y, int n) {
    __shared__ float s[64];
    if ((int)threadIdx.x >= n) return;
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[n - 1 - threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), 50); }
