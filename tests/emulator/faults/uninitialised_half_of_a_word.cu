// One half of a word in shared memory is set, and the word is read.
// Expected: uninitialised_read
__global__ void kernel(const float* x, float* y) {
    __shared__ __half pair[2];
    if (threadIdx.x == 0) pair[0] = __float2half(x[1]);
    __syncthreads();
    const __half2 both = *reinterpret_cast<__half2*>(pair);  // HERE
    y[threadIdx.x] = __low2float(both) + __high2float(both);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
