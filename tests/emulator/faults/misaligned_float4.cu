// A float4 load from a tensor that starts 4 bytes off.
// Expected: misaligned_access
// Fast mode: misaligned_access
__global__ void kernel(const float4* x, float* y) {
    const float4 v = x[threadIdx.x];  // HERE
    y[threadIdx.x] = v.x + v.w;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto view = x.slice(0, 1);
    kernel<<<1, 32>>>(reinterpret_cast<const float4*>(view.data_ptr<float>()), y.data_ptr<float>());
}
