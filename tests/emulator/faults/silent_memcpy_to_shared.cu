// memcpy fills shared memory, in pieces that are no power of two.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64 * 3];
    memcpy(s + 3 * threadIdx.x, x + 3 * threadIdx.x, 3 * sizeof(float));
    __syncthreads();
    y[threadIdx.x] = s[191 - threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
