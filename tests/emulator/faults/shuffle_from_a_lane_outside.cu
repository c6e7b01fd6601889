// A shuffle in half a warp reads lanes of the other half.
// Expected: bad_shuffle
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x < 16) y[threadIdx.x] = __shfl_down_sync(0xffffu, x[threadIdx.x], 8);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
