// A variable that a template declares is memory like any other.
// Expected: data_race
template <typename T>
__device__ T of_template[64];
__global__ void kernel(const float* x, float* y) {
    of_template<float>[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = of_template<float>[63 - threadIdx.x];  // HERE
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
