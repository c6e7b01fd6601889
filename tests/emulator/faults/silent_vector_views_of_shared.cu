// Shared memory is filled as float4 and read as floats.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ __align__(16) float s[256];
    reinterpret_cast<float4*>(s)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[255 - threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
