// Shared variables at file scope, sizes that are expressions, a parameter of their name.
// Expected: silent
__shared__ float shared_tile[1 << 6];
extern __shared__ float shared_rest[];
__device__ float first_of(const float* shared_tile) { return shared_tile[0]; }
__global__ void kernel(const float* x, float* y) {
    __shared__ int counts[sizeof(float) << 2];
    shared_tile[threadIdx.x] = x[threadIdx.x];
    shared_rest[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 16) counts[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = shared_tile[63 - threadIdx.x] + shared_rest[63 - threadIdx.x] + counts[threadIdx.x % 16] + first_of(x);
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
