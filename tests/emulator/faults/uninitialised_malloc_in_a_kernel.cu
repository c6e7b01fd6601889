// What malloc gives is not set.
// Expected: uninitialised_read
__global__ void kernel(const float* x, float* y) {
    float* own = static_cast<float*>(malloc(4 * sizeof(float)));
    own[0] = x[0];
    y[threadIdx.x] = own[3];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
