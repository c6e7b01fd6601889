// A product of two matrices in tiles, with both barriers.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float a[8][8], b[8][8];
    const int c = threadIdx.x % 8, r = threadIdx.x / 8;
    float sum = 0;
    for (int k = 0; k < 16; k += 8) {
        a[r][c] = x[r * 16 + k + c];
        b[r][c] = x[(k + r) * 8 + c];
        __syncthreads();
        for (int i = 0; i < 8; i++) sum += a[r][i] * b[i][c];
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
