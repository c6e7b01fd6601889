// The second kernel reads what the first one wrote in another stream, and no event stands between them.
// Expected: data_race
#include <c10/cuda/CUDAStream.h>
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }  // HERE
__global__ void second(float* y) { y[threadIdx.x] += 1.f; }  // HERE
void run(torch::Tensor x, torch::Tensor y) {
    auto side = c10::cuda::getStreamFromPool();
    auto main = c10::cuda::getCurrentCUDAStream();
    first<<<1, 256, 0, side>>>(x.data_ptr<float>(), y.data_ptr<float>());
    second<<<1, 256, 0, main>>>(y.data_ptr<float>());
}
