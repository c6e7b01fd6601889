// A shared variable's type is defined in its declaration and used afterwards.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ struct Pair {
        float value[64];
        int count;
    } pair;
    if (threadIdx.x == 0) pair = Pair{};
    __syncthreads();
    pair.value[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = pair.value[63 - threadIdx.x] + pair.count;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
