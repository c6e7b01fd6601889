// A stream that was given up, and errors that are looked at: a GPU's driver may not get as far.
// Expected: bad_handle
// Fast mode: bad_handle
__global__ void kernel(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t gone;
    cudaStreamCreate(&gone);
    cudaStreamDestroy(gone);
    kernel<<<1, 256, 0, gone>>>(y.data_ptr<float>());  // HERE
    TORCH_CHECK(std::string(cudaGetErrorName(cudaGetLastError())) == "cudaErrorInvalidResourceHandle");
    TORCH_CHECK(cudaStreamSynchronize(gone) == cudaErrorInvalidResourceHandle);
}
