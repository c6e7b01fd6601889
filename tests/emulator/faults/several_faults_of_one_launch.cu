// A race, an access out of bounds, a misaligned one and a write to a constant, each in another line.
// Expected: data_race
// Also: out_of_bounds,misaligned_access,write_to_constant
__constant__ float factors[4];
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];  // HERE
    __syncthreads();
    if (threadIdx.x == 5) y[threadIdx.x] = x[2000 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 7) *reinterpret_cast<float2*>(y + 9) = make_float2(1, 2);
    __syncthreads();
    float* f = factors + threadIdx.x % 4;
    if (threadIdx.x == 9) *f = x[3];
    y[threadIdx.x] = s[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
