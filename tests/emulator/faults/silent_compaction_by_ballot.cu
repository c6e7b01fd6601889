// A warp compacts with a ballot and one atomic.
// Expected: silent
__global__ void kernel(const float* x, float* y, int* flags) {
    const bool keep = threadIdx.x % 3 == 0;
    const unsigned kept = __ballot_sync(~0u, keep);
    int base = 0;
    if (threadIdx.x % 32 == 0) base = atomicAdd(flags, __popc(kept));
    base = __shfl_sync(~0u, base, 0);
    if (keep) y[base + __popc(kept & ((1u << threadIdx.x % 32) - 1))] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto ints = torch::zeros({64}, x.options().dtype(torch::kInt));
    auto* flags = ints.data_ptr<int>();
    kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), flags);
}
