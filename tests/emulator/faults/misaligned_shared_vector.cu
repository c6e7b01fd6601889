// A float4 view of dynamic shared memory behind one float.
// Expected: misaligned_access
// Fast mode: misaligned_access
__global__ void kernel(const float* x, float* y) {
    extern __shared__ float s[];
    float4* v = reinterpret_cast<float4*>(s + 1);
    v[threadIdx.x] = make_float4(x[0], x[1], x[2], x[3]);  // HERE
    __syncthreads();
    y[threadIdx.x] = v[threadIdx.x].y;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 8, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
