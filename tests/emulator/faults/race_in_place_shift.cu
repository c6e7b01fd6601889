// Each thread moves its element to the left in place.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    const float v = y[threadIdx.x + 1];  // HERE
    y[threadIdx.x] = v + x[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
