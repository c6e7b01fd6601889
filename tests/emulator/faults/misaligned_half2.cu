// Packed halfs are read from an odd element.
// Expected: misaligned_access
// Fast mode: misaligned_access
__global__ void kernel(const __half* x, float* y) {
    const __half2 pair = *reinterpret_cast<const __half2*>(x + 2 * threadIdx.x + 1);  // HERE
    y[threadIdx.x] = __low2float(pair);
}
void run(torch::Tensor x, torch::Tensor y) {
    auto h = x.to(torch::kHalf);
    kernel<<<1, 32>>>(reinterpret_cast<const __half*>(h.data_ptr<at::Half>()), y.data_ptr<float>());
}
