// What a kernel writes is copied in another stream that does not wait for it.
// Expected: data_race
__global__ void kernel(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t a, b;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    kernel<<<1, 256, 0, a>>>(x.data_ptr<float>(), y.data_ptr<float>());  // HERE
    cudaMemcpyAsync(y.data_ptr<float>() + 512, y.data_ptr<float>(), 1024, cudaMemcpyDeviceToDevice, b);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}
