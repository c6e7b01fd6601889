// One scratch array serves two sums, without a barrier between them.
// Expected: data_race
__device__ float total(float v, float* scratch) {
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;  // HERE
    __syncthreads();
    return scratch[0] + scratch[1];  // HERE
}
__global__ void kernel(const float* x, float* y) {
    __shared__ float scratch[2];
    const float mean = total(x[threadIdx.x], scratch) / 64;
    y[threadIdx.x] = total((x[threadIdx.x] - mean) * (x[threadIdx.x] - mean), scratch);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
