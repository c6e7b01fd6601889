// A __device__ array is copied in another stream than the kernel's that writes it.
// Expected: data_race
__device__ float sums[64];
__global__ void kernel(const float* x) { sums[threadIdx.x] = x[threadIdx.x]; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t a, b;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    float found[64];
    kernel<<<1, 64, 0, a>>>(x.data_ptr<float>());  // HERE
    cudaMemcpyFromSymbolAsync(found, sums, sizeof found, 0, cudaMemcpyDeviceToHost, b);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}
