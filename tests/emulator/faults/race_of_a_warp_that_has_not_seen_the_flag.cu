// One warp of a block waits for another block's flag. A second warp reads what the flag stands for and has not waited.
// Expected: data_race
// Order: forward
__global__ void kernel(const float* x, float* y, int* flag) {
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            y[0] = x[5];
            y[1] = x[6];  // HERE
            __threadfence();
            atomicExch(flag, 1);
        }
        return;
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0) == 0) {
        }
        y[2] = 2 * y[0];
    }
    if (threadIdx.x == 32) y[3] = 2 * y[1];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    auto flag = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<2, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), flag.data_ptr<int>());
}
