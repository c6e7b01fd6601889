// A variable that a function keeps is one for all threads.
// Expected: data_race
__device__ int beside = 0;
__device__ int ticket() {
    static int next = 0;
    return next++;  // HERE
}
__global__ void kernel(const float* x, float* y) { y[threadIdx.x] = x[ticket() + beside]; }
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
