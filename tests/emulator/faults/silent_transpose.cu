// A tile is transposed through padded shared memory.
// Expected: silent
__global__ void kernel(const float* x, float* y) {
    __shared__ float tile[16][17];
    const int c = threadIdx.x % 16, r = threadIdx.x / 16;
    tile[r][c] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[c][r];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
