// A stream that was given up is refused, by the name that CUDA has for it, and the caller looks.
// Expected: silent
__global__ void kernel(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t gone;
    cudaStreamCreate(&gone);
    cudaStreamDestroy(gone);
    kernel<<<1, 256, 0, gone>>>(y.data_ptr<float>());
    TORCH_CHECK(std::string(cudaGetErrorName(cudaGetLastError())) == "cudaErrorInvalidResourceHandle");
    TORCH_CHECK(cudaStreamSynchronize(gone) == cudaErrorInvalidResourceHandle);
}
