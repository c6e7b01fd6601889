// A block of 50 threads: the mask names lanes that do not exist.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    float v = x[threadIdx.x];
    const unsigned votes = __ballot_sync(0xffffffffu, v > 10.f);
    const unsigned lanes = threadIdx.x < 32 ? 0xffffffffu : (1u << 18) - 1;
    y[threadIdx.x] = __popc(votes & lanes) + __shfl_sync(lanes, v, 0);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 50>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
