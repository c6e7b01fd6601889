// Neighbouring threads write the two halfs of one word.
// Expected: silent
__global__ void kernel(const __half* x, __half* y) {
    __shared__ __half s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) {
    auto h = x.to(torch::kHalf), out = torch::empty({64}, h.options());
    kernel<<<1, 64>>>(reinterpret_cast<const __half*>(h.data_ptr<at::Half>()),
                      reinterpret_cast<__half*>(out.data_ptr<at::Half>()));
    y.slice(0, 0, 64).copy_(out);
}
