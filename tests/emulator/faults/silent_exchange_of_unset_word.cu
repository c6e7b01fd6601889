// atomicExch sets a word of shared memory, and nobody looks at what was there.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ int latest;
    atomicExch(&latest, 5);
    __syncthreads();
    y[threadIdx.x] = x[threadIdx.x] + latest;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
