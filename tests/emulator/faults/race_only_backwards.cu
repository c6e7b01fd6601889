// Who comes in turn leaves early: only in another order do threads reach the racy lines.
// Expected: data_race
// Order: reverse
__global__ void kernel(const float* x, float* y, int* arrived) {
    __shared__ float s[64];
    const int turn = atomicAdd(arrived, 1);
    if (turn != threadIdx.x) {
        s[threadIdx.x] = x[threadIdx.x];  // HERE
        y[threadIdx.x] = s[63 - threadIdx.x];  // HERE
    } else {
        y[threadIdx.x] = x[threadIdx.x];
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto arrived = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), arrived.data_ptr<int>());
}
