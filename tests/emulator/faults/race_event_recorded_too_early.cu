// An event is waited for, but it was recorded before the launch that it should stand behind.
// Expected: data_race
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }  // HERE
__global__ void second(float* y) { y[threadIdx.x] += 1.f; }  // HERE
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t a, b;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaEventRecord(done, a);
    first<<<1, 256, 0, a>>>(x.data_ptr<float>(), y.data_ptr<float>());
    cudaStreamWaitEvent(b, done, 0);
    second<<<1, 256, 0, b>>>(y.data_ptr<float>());
    cudaEventDestroy(done);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}
