// A stream is told to wait for an event that was given up.
// Expected: bad_handle
// Fast mode: bad_handle
// Place: unknown
__global__ void kernel(float* y) { y[threadIdx.x] = 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaEvent_t end;
    cudaEventCreate(&end);
    kernel<<<1, 256>>>(y.data_ptr<float>());
    cudaEventRecord(end);
    cudaEventDestroy(end);
    cudaStreamWaitEvent(0, end);
}
