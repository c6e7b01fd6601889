// Neighbours' values are read without a barrier after the stores.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = s[255 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
