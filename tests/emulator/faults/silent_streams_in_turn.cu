// Two streams, and events that make each wait for the other; memory is used again only behind them.
// Expected: silent
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
__global__ void first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void second(float* y) { y[threadIdx.x] += 1.f; }
void run(torch::Tensor x, torch::Tensor y) {
    auto main = c10::cuda::getCurrentCUDAStream();
    auto side = c10::cuda::getStreamFromPool();
    cudaEvent_t begin, end;
    cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    for (int i = 0; i < 3; i++) {
        cudaEventRecord(begin, main);
        cudaStreamWaitEvent(side, begin, 0);
        {
            c10::cuda::CUDAStreamGuard guard(side);
            first<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>());
            cudaEventRecord(end, c10::cuda::getCurrentCUDAStream());
        }
        cudaStreamWaitEvent(main, end, 0);
        second<<<1, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>());
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}
