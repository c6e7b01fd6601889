// Two streams at the same time, each on its half; the default stream waits for both, and they for it, by themselves.
// Expected: silent
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void second(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t streams[2];
    for (auto& stream : streams) cudaStreamCreate(&stream);
    second<<<1, 512>>>(y.data_ptr<float>());
    for (int i = 0; i < 2; i++) first<<<1, 256, 0, streams[i]>>>(x.data_ptr<float>() + 256 * i, y.data_ptr<float>() + 256 * i);
    second<<<1, 512>>>(y.data_ptr<float>());
    for (auto& stream : streams) cudaStreamDestroy(stream);
}
