// Lanes exchange values through shared memory as if a warp were in lockstep.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = s[31 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
