// More threads a block than the kernel's __launch_bounds__ allow: a GPU refuses the launch.
// Expected: bad_launch
// Fast mode: bad_launch
template <int Threads>
__global__ void __launch_bounds__(Threads, 2) kernel(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<128><<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>());  // HERE
}
