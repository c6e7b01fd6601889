// A block publishes its result with a flag, and no __threadfence() puts the result before the flag.
// Expected: data_race
__global__ void kernel(const float* x, float* y, int* flag) {
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            y[0] = x[5];  // HERE
            atomicExch(flag, 1);
        }
        return;
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0) == 0) {
        }
        y[blockIdx.x] = 2 * y[0];  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flag = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<4, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), flag.data_ptr<int>());
}
