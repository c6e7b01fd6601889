// A stencil loads its halo, and a barrier follows.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[66];
    s[threadIdx.x + 1] = x[threadIdx.x + 1];
    if (threadIdx.x == 0) s[0] = x[0];
    if (threadIdx.x == 63) s[65] = x[65];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 1] + s[threadIdx.x + 2];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
