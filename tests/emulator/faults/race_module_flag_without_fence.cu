// A __device__ flag is set without a fence behind the data.
// Expected: data_race
__device__ int ready;
__device__ float value;
__global__ void kernel(const float* x, float* y) {
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value = x[7];  // HERE
        atomicExch(&ready, 1);
    } else {
        while (atomicAdd(&ready, 0) == 0) {
        }
        y[0] = value;  // HERE
    }
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<2, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
