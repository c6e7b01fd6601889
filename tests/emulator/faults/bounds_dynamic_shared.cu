// The launch gives half of the dynamic shared memory that the kernel uses.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];  // HERE
    __syncthreads();
    y[threadIdx.x] = s[255 - threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 256, 128 * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
