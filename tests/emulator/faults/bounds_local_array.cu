// An index past an array of a thread's own.
// Expected: out_of_bounds
// Fast mode: out_of_bounds
__global__ void kernel(const float* x, float* y, int n) {
    float mine[4];
    for (int i = 0; i < n; i++) mine[i] = x[i];  // HERE
    y[threadIdx.x] = mine[0] + mine[3];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), 5); }
