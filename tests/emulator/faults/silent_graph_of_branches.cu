// A CUDA graph of two branches, captured once and launched twice; each launch begins with what the last one left.
// Expected: silent
#include <c10/cuda/CUDAStream.h>
__global__ void first(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }
__global__ void second(float* y) { y[threadIdx.x] += y[threadIdx.x + 64]; }
void run(torch::Tensor x, torch::Tensor y) {
    auto main = c10::cuda::getStreamFromPool(), side = c10::cuda::getStreamFromPool();
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaStreamBeginCapture(main, cudaStreamCaptureModeGlobal);
    cudaEventRecord(begin, main);
    cudaStreamWaitEvent(side, begin, 0);
    first<<<1, 64, 0, main>>>(x.data_ptr<float>(), y.data_ptr<float>());
    first<<<1, 64, 0, side>>>(x.data_ptr<float>(), y.data_ptr<float>() + 64);
    cudaEventRecord(end, side);
    cudaStreamWaitEvent(main, end, 0);
    second<<<1, 64, 0, main>>>(y.data_ptr<float>());
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamEndCapture(main, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphLaunch(executable, main);
    cudaGraphLaunch(executable, main);
    cudaStreamSynchronize(main);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}
