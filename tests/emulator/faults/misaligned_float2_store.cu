// A float2 store at an odd element.
// Expected: misaligned_access
// Fast mode: misaligned_access
__global__ void kernel(float* y) {
    *reinterpret_cast<float2*>(y + 2 * threadIdx.x + 1) = make_float2(1.f, 2.f);  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(y.data_ptr<float>()); }
