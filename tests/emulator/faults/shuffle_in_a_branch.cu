// Half of a warp waits for the other half, which waits in another shuffle.
// Expected: bad_shuffle
// Fast mode: bad_shuffle
__global__ void kernel(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffffffu, v, 1);
    __syncthreads();
    y[threadIdx.x] = v;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
