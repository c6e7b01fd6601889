// Two streams take memory and free it so often that each gets addresses which the other one had.
// Expected: silent
__global__ void kernel(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    cudaStream_t streams[2];
    for (auto& stream : streams) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (int i = 0; i < 3001; i++) {
        cudaStream_t stream = streams[i % 3 == 0];
        void* memory;
        cudaMallocAsync(&memory, 1024, stream);
        cudaMemsetAsync(memory, 0, 1024, stream);
        if (i % 100 == 0) kernel<<<1, 256, 0, stream>>>(static_cast<float*>(memory));
        cudaFreeAsync(memory, stream);
    }
    cudaDeviceSynchronize();
    for (auto& stream : streams) cudaStreamDestroy(stream);
}
