// The second kernel may begin before the first has ended, and does not wait for it.
// Expected: data_race
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }  // HERE
__global__ void second(float* y) {
    const float v = y[threadIdx.x];  // HERE
    asm volatile("griddepcontrol.wait;" ::: "memory");
    y[threadIdx.x] = v + 1.f;
}
void run(torch::Tensor x, torch::Tensor y) {
    first<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>());
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
