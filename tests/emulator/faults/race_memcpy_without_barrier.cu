// What another thread's memcpy wrote is read without a barrier.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[64 * 3];
    memcpy(s + 3 * threadIdx.x, x + 3 * threadIdx.x, 12);  // HERE
    y[threadIdx.x] = s[191 - 3 * threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
