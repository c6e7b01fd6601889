// Dynamic shared memory is cut into a part of floats and one of ints.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    extern __shared__ char memory[];
    float* values = reinterpret_cast<float*>(memory);
    int* order = reinterpret_cast<int*>(memory + 64 * sizeof(float));
    values[threadIdx.x] = x[threadIdx.x];
    order[threadIdx.x] = 63 - threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = values[order[threadIdx.x]];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64, 512>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
