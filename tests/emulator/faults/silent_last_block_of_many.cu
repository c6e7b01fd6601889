// The last of 2000 blocks adds up what all have written: each knows of the others through one counter, in a long chain.
// Expected: silent
__global__ void kernel(const float* x, float* partials, unsigned* finished, float* y) {
    partials[blockIdx.x] = x[blockIdx.x % 1024];
    __threadfence();
    if (atomicAdd(finished, 1u) == gridDim.x - 1) {
        float sum = 0.0f;
        for (int i = 0; i < gridDim.x; i++) sum += partials[i];
        y[0] = sum;
    }
}
void run(torch::Tensor x, torch::Tensor y) {
    auto partials = torch::empty({2000}, x.options());
    auto finished = torch::zeros({1}, x.options().dtype(torch::kInt));
    kernel<<<2000, 1>>>(x.data_ptr<float>(), partials.data_ptr<float>(),
                        reinterpret_cast<unsigned*>(finished.data_ptr<int>()), y.data_ptr<float>());
}
