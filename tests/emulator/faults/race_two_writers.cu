// All threads write their own value to one word.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float last;
    last = x[threadIdx.x];  // HERE
    __syncthreads();
    y[threadIdx.x] = last;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
