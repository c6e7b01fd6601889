// The same without the barrier before the next number is taken.
// Expected: data_race
__global__ void kernel(const float* x, float* y, int* flags) {
    __shared__ int mine;
    while (true) {
        if (threadIdx.x == 0) mine = atomicAdd(flags, 1);  // HERE
        __syncthreads();
        if (mine >= 4) return;  // HERE
        y[64 * mine + threadIdx.x] = x[threadIdx.x];  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
