// Sweeps over a volatile array whose neighbours other blocks write, with a barrier of the own block only.
// Expected: data_race
__global__ void kernel(volatile float* y, int sweeps) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int sweep = 0; sweep < sweeps; sweep++) {
        const float mean = (y[(i + n - 1) % n] + y[(i + 1) % n]) / 2;  // HERE
        __syncthreads();
        y[i] = mean + 1;  // HERE
        __syncthreads();
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<4, 64>>>(y.data_ptr<float>(), 3); }
