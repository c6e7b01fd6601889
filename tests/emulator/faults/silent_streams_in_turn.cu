// Two streams, and events that make each wait for the other; memory is used again only behind them.
// Expected: silent
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void second(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    auto main = c10::cuda::getCurrentCUDAStream();
    auto side = c10::cuda::getStreamFromPool();
    for (int i = 0; i < 3; i++) {
        at::cuda::CUDAEvent begin, end;
        begin.record(main);
        begin.block(side);
        {
            c10::cuda::CUDAStreamGuard guard(side);
            first<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>());
            end.record();
        }
        end.block(main);
        second<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>());
    }
}
