// Members, parameters and locals have names of shared variables of the file and of built-in variables.
// Expected: silent
__shared__ float tile[64];
namespace inner {
__shared__ float cells[64], *start;
}
struct Part {
    int tile;
    dim3 gridDim;
    __device__ float get(const float* cells) const { return cells[tile] + gridDim.x; }
};
__global__ void kernel(const float* x, float* y) {
    extern __shared__ float rows[][8];
    Part part{1, gridDim};
    tile[threadIdx.x] = x[threadIdx.x];
    inner::cells[threadIdx.x] = 2 * x[threadIdx.x];
    if (threadIdx.x == 0) inner::start = inner::cells;
    rows[threadIdx.x / 8][threadIdx.x % 8] = 1;
    __syncthreads();
    float sum = 0;
    {
        float tile[2] = {1, 2};
        sum += tile[0] + part.tile;
    }
    auto last = [](const float* tile) { return tile[63]; };
    y[threadIdx.x] = sum + last(tile) + part.get(inner::start) + rows[7][7] + tile[63 - threadIdx.x] * blockDim.x;
}
void launch(const dim3& gridDim, dim3 blockDim, const float* x, float* y) { kernel<<<gridDim, blockDim, 256>>>(x, y); }
void run(torch::Tensor x, torch::Tensor y) {
    const dim3 blockDim(64), gridDim{1};
    launch(gridDim, blockDim, x.data_ptr<float>(), y.data_ptr<float>());
}
