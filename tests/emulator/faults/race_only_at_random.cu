// Threads that come in turn, or in turn from the end, leave early.
// Expected: data_race
// Order: random
__global__ void kernel(const float* x, float* y, int* arrived) {
    __shared__ float s[64];
    const int turn = atomicAdd(arrived, 1);
    if (turn != threadIdx.x && turn != 63 - threadIdx.x) {
        s[threadIdx.x / 2] = x[threadIdx.x];  // HERE
    }
    y[threadIdx.x] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto arrived = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), arrived.data_ptr<int>());
}
