// Lanes of the upper half execute a shuffle whose mask names the lower half.
// Expected: bad_shuffle
// Fast mode: bad_shuffle
__global__ void kernel(const float* x, float* y) {
    y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
