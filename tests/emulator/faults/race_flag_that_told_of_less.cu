// Block 2 waits for block 1, which had seen block 0's first flag, and not yet the one behind its result.
// Expected: data_race
// Order: forward
__device__ volatile int first, second, unread;
__global__ void kernel(const float* x, float* y) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        first = 1;
        y[0] = x[5];  // HERE
        unread = 1;
        while (second != 1) __nanosleep(20);
        __threadfence();
        first = 2;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (first == 0) __nanosleep(20);
        __threadfence();
        second = 1;
    }
    if (blockIdx.x == 2 && threadIdx.x == 0) {
        while (second != 1) __nanosleep(20);
        for (int i = 0; i < 200; i++) __nanosleep(20);
        y[1] = y[0];  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<3, 32>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
