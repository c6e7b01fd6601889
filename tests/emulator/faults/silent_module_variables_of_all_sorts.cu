// Variables that a template, a macro and a function declare lie beside others.
// Expected: silent
#define COUNTER(name) __device__ unsigned name
template <typename T>
__device__ T of_template[64];
__device__ int first_of_all = 1;
COUNTER(by_macro);
namespace inner {
namespace {
__device__ float hidden[64];
}
}
__device__ unsigned ticket() {
    static unsigned next = 0;
    return atomicAdd(&next, 1u);
}
__global__ void kernel(const float* x, float* y) {
    of_template<float>[threadIdx.x] = x[threadIdx.x];
    inner::hidden[threadIdx.x] = x[threadIdx.x];
    atomicAdd(&by_macro, unsigned(first_of_all));
    __syncthreads();
    y[ticket()] = of_template<float>[63 - threadIdx.x] + inner::hidden[63 - threadIdx.x] + by_macro;
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
