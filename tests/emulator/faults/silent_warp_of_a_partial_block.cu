// A block of 40 threads reduces with the mask of the lanes that exist.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    const unsigned lanes = threadIdx.x < 32 ? ~0u : 0xffu;
    float v = x[threadIdx.x];
    for (int o = threadIdx.x < 32 ? 16 : 4; o; o /= 2) v += __shfl_xor_sync(lanes, v, o);
    y[threadIdx.x] = v;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 40>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
