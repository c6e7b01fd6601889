// Two blocks copy a float4 to one place.
// Expected: data_race
__global__ void kernel(const float4* x, float4* y) {
    if (threadIdx.x == 0) y[0] = x[blockIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<2, 32>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()));
}
