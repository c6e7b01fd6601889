// An operator on a strided view stands between the two launches, and has waited for the first.
// Expected: silent
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void second(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    first<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>());
    y.view({512, 2}).slice(0, 256).select(1, 1).add_(1);
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(256);
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, second, y.data_ptr<float>());
}
