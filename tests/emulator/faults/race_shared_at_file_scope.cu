// A shared variable at file scope is read without a barrier.
// Expected: data_race
__shared__ float racing_tile[64];
__global__ void kernel(const float* x, float* y) {
    racing_tile[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = racing_tile[63 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
