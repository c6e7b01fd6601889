// Volatile shared memory between the lanes of a warp, without __syncwarp().
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        volatile float* v = s;
        v[threadIdx.x] = v[threadIdx.x] + v[threadIdx.x + 32];  // HERE
        v[threadIdx.x] = v[threadIdx.x] + v[threadIdx.x + 16];  // HERE
    }
    if (threadIdx.x == 0) y[0] = s[0];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
