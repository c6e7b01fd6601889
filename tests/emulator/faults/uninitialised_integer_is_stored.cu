// An index that nobody wrote leaves the kernel.
// Expected: uninitialised_read
__global__ void kernel(const float* x, int* y) {
    __shared__ int order[64];
    if (threadIdx.x < 60) order[threadIdx.x] = 63 - threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = order[threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<1, 64>>>(x.data_ptr<float>(), reinterpret_cast<int*>(y.data_ptr<float>()));
}
