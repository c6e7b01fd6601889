// An index past a static shared array.
// Expected: out_of_bounds
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[32];
    float* p = s;
    p[threadIdx.x] = x[threadIdx.x];  // HERE
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x % 32];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 33>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
