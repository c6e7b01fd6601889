// A shared buffer is written again while other threads may still read it.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[256];
    const unsigned t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    const float first = s[255 - t];  // HERE
    s[t] = x[t] * 2;  // HERE
    __syncthreads();
    y[t] = first + s[255 - t];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
