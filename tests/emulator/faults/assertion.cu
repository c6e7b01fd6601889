// A device assertion that does not hold.
// Expected: assertion
// Fast mode: assertion
#include <cassert>
__global__ void kernel(const float* x, float* y) {
    assert(x[threadIdx.x] < 10.f);  // HERE
    y[threadIdx.x] = x[threadIdx.x];
}
void run(torch::Tensor x, torch::Tensor y) { kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>()); }
