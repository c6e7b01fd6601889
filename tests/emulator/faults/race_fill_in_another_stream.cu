// The sums are set to zero in one stream and added up in another.
// Expected: data_race
__global__ void kernel(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }  // HERE
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t a, b;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaMemsetAsync(y.data_ptr<float>(), 0, 4, a);
    kernel<<<1, 256, 0, b>>>(x.data_ptr<float>(), y.data_ptr<float>());
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}
