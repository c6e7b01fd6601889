// A kernel and a fill of two streams meet in the last byte of a word.
// Expected: data_race
__global__ void kernel(signed char* y) { y[threadIdx.x] = 1; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t a, b;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    auto* bytes = reinterpret_cast<signed char*>(y.data_ptr<float>());
    kernel<<<1, 32, 0, a>>>(bytes);  // HERE
    cudaMemsetAsync(bytes + 31, 0, 1, b);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}
