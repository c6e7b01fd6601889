// As many threads as the bounds allow.
// Expected: silent
template <int Threads>
__global__ void __launch_bounds__(2 * Threads) kernel(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<128><<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>());
}
