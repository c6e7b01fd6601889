// Block 2 waits for block 1, which sees the flag behind block 0's result only after it has set its own.
// Expected: data_race
// Order: forward
__device__ volatile int first, second;
__global__ void kernel(const float* x, float* y) {
    if (blockIdx.x == 0 && threadIdx.x == 0) first = 1;
    if (blockIdx.x == 0 && threadIdx.x == 32) {
        y[0] = x[5];  // HERE
        while (second != 1) __nanosleep(20);
        __threadfence();
        first = 2;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (first == 0) __nanosleep(20);
        __threadfence();
        second = 1;
        while (first != 2) __nanosleep(20);
    }
    if (blockIdx.x == 2 && threadIdx.x == 0) {
        while (second != 1) __nanosleep(20);
        for (int i = 0; i < 200; i++) __nanosleep(20);
        y[1] = y[0];  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<3, 64>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
