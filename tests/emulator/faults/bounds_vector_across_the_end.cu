// A float4 load of which the last element lies outside.
// Expected: out_of_bounds
__global__ void kernel(const float4* x, float* y) {
    const float4 v = x[threadIdx.x];  // HERE
    y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
void run(torch::Tensor x, torch::Tensor y) {
    auto short_one = torch::zeros({127}, x.options());
    kernel<<<1, 32>>>(reinterpret_cast<const float4*>(short_one.data_ptr<float>()), y.data_ptr<float>());
}
