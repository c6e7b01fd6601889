// The same without the barrier behind the loop's body.
// Expected: data_race
__global__ void kernel(const float* x, float* y) {
    __shared__ float a[8][8];
    const int c = threadIdx.x % 8, r = threadIdx.x / 8;
    float sum = 0;
    for (int k = 0; k < 16; k += 8) {
        a[r][c] = x[r * 16 + k + c];  // HERE
        __syncthreads();
        for (int i = 0; i < 8; i++) sum += a[i][c];  // HERE
    }
    y[threadIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
