// Two blocks copy a uint4 to one place.
// Expected: data_race
__global__ void kernel(const uint4* x, uint4* y) {
    if (threadIdx.x == 0) y[0] = x[blockIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) {
    kernel<<<2, 32>>>(reinterpret_cast<const uint4*>(x.data_ptr<float>()), reinterpret_cast<uint4*>(y.data_ptr<float>()));
}
