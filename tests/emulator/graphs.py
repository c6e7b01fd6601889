"""CUDA graphs by stream capture, from C++ and from Python."""

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <vector>

__global__ void add(const float* x, float* y, float by) { y[threadIdx.x] = x[threadIdx.x] + by; }
__global__ void sum(const float* a, const float* b, float* y) { y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x]; }
__global__ void count(float* y) { atomicAdd(y, 1.f); }

static void count_call(void* data) { ++*static_cast<int*>(data); }
static std::string name(cudaError_t error) { return cudaGetErrorName(error); }
static float* ptr(torch::Tensor t) { return t.data_ptr<float>(); }

// A fill, a launch, a copy and a function of the host: nothing of it is done before the graph is launched.
std::vector<double> all_sorts(torch::Tensor x, torch::Tensor y) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    static int calls = 0;
    auto part = torch::zeros({64}, x.options());
    cudaDeviceSynchronize();
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaMemsetAsync(ptr(part), 0, 256, stream);
    count<<<1, 64, 0, stream>>>(ptr(part));
    float by = 0.5f;
    add<<<1, 64, 0, stream>>>(ptr(x), ptr(part) + 0 * 64, by);
    by = 100;   // the argument is read at the capture
    cudaMemcpyAsync(ptr(y), ptr(part), 256, cudaMemcpyDeviceToDevice, stream);
    cudaLaunchHostFunc(stream, count_call, &calls);
    cudaStreamCaptureStatus status;
    cudaStreamIsCapturing(stream, &status);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    C10_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    C10_CUDA_CHECK(cudaGraphDestroy(graph));
    const double before = calls + y.abs().sum().item<double>();
    for (int i = 0; i < 3; i++) C10_CUDA_CHECK(cudaGraphLaunch(executable, stream));
    cudaStreamSynchronize(stream);
    C10_CUDA_CHECK(cudaGraphExecDestroy(executable));
    const bool gone = cudaGraphLaunch(executable, stream) == cudaErrorInvalidValue && cudaGetLastError() != cudaSuccess;
    cudaStreamDestroy(stream);
    return {before, double(calls), double(status), double(gone)};
}

// Two branches that an event begins and another joins; `joined` false leaves that out of what the sum waits for.
void branches(torch::Tensor x, torch::Tensor y, bool joined) {
    auto main = c10::cuda::getStreamFromPool(), side = c10::cuda::getStreamFromPool();
    auto a = torch::zeros({64}, x.options()), b = torch::zeros({64}, x.options());
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaDeviceSynchronize();
    C10_CUDA_CHECK(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
    cudaEventRecord(begin, main);
    cudaStreamWaitEvent(side, begin, 0);
    add<<<1, 64, 0, main>>>(ptr(x), ptr(a), 1);
    add<<<1, 64, 0, side>>>(ptr(x), ptr(b), 2);
    cudaEventRecord(end, side);
    if (joined) cudaStreamWaitEvent(main, end, 0);
    sum<<<1, 64, 0, main>>>(ptr(a), ptr(b), ptr(y));
    if (!joined) cudaStreamWaitEvent(main, end, 0);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    C10_CUDA_CHECK(cudaStreamEndCapture(main, &graph));
    C10_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
    for (int i = 0; i < 2; i++) C10_CUDA_CHECK(cudaGraphLaunch(executable, main));
    cudaDeviceSynchronize();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}

// What CUDA answers to what a capture does not allow, and what the end of that capture says.
std::string refused(int64_t which) {
    cudaStream_t stream, other;
    cudaStreamCreate(&stream);   // the legacy stream waits for it
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEvent_t outside, inside;
    cudaEventCreate(&outside);
    cudaEventCreate(&inside);
    cudaEventRecord(outside, other);
    auto y = torch::zeros({64}, torch::dtype(torch::kFloat).device(torch::kCUDA));
    float* p = ptr(y);
    cudaDeviceSynchronize();
    if (which == 0) return name(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal));
    if (which == 1) {
        cudaGraph_t none;
        return name(cudaStreamEndCapture(stream, &none));
    }
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cudaError_t said = cudaSuccess;
    void* more;
    float ms;
    if (which == 2) said = cudaStreamSynchronize(stream);
    if (which == 3) said = cudaDeviceSynchronize();
    if (which == 4) said = cudaMalloc(&more, 64);
    if (which == 5) said = cudaMemset(p, 0, 64);
    if (which == 6) said = cudaStreamWaitEvent(stream, outside, 0);
    cudaEventRecord(inside, stream);
    if (which == 7) said = cudaEventSynchronize(inside);
    if (which == 8) said = cudaEventElapsedTime(&ms, inside, inside);
    if (which == 9) said = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    if (which == 10) {
        cudaStreamWaitEvent(other, inside, 0);
        add<<<1, 64, 0, other>>>(p, p, 1);
    }
    if (which == 11) {
        cudaStreamWaitEvent(other, inside, 0);
        cudaGraph_t none;
        said = cudaStreamEndCapture(other, &none);
    }
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    const bool usable = end == cudaSuccess && cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
    cudaGetLastError();
    return name(said) + " " + name(end) + (usable ? " usable" : "");
}

void overrun(torch::Tensor y) {
    auto stream = c10::cuda::getStreamFromPool();
    cudaDeviceSynchronize();
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    add<<<1, 96, 0, stream>>>(ptr(y), ptr(y), 1);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiateWithFlags(&executable, graph, 0);
    cudaGraphLaunch(executable, stream);
}

void pool_memory() {
    auto stream = c10::cuda::getStreamFromPool();
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    void* memory;
    cudaMallocAsync(&memory, 64, stream);
}

void add_one(torch::Tensor x, torch::Tensor y) {
    add<<<1, 64, 0, c10::cuda::getCurrentCUDAStream()>>>(ptr(x), ptr(y), 1);
}
"""

DECLARATIONS = """
std::vector<double> all_sorts(torch::Tensor x, torch::Tensor y);
void branches(torch::Tensor x, torch::Tensor y, bool joined);
std::string refused(int64_t which);
void overrun(torch::Tensor y);
void pool_memory();
void add_one(torch::Tensor x, torch::Tensor y);
"""
FUNCTIONS = ["all_sorts", "branches", "refused", "overrun", "pool_memory", "add_one"]
extension = load_inline(name="graphs", cpp_sources=DECLARATIONS, cuda_sources=CUDA, functions=FUNCTIONS)


def _message(call):
    try:
        call()
    except (RuntimeError, NotImplementedError) as error:
        return str(error)
    return ""


class Graphed:
    """As submissions do it: a graph of a function on a still input, and a copy of each new input into that."""

    def __init__(self, torch, function, x):
        self.still = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function(self.still)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = function(self.still)

    def __call__(self, x):
        self.still.copy_(x)
        self.graph.replay()
        return self.result.clone()


def _own_kernel_between_operators(torch):
    def function(x):
        y = torch.empty_like(x)
        extension.add_one(x * 2, y)  # the product is let go of, and its memory used again by each replay
        y.mul_(y)
        return torch.layer_norm(y.view(4, 16), [16])

    inputs = [torch.randn(64, device="cuda") for _ in range(3)]
    graphed = Graphed(torch, function, inputs[0])
    return all(torch.allclose(graphed(x).cpu(), function(x).cpu(), atol=1e-6) for x in inputs)


def _nothing_is_done_at_the_capture(torch):
    total = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.add_(1)
        inside = torch.cuda.is_current_stream_capturing()
    seen = [total.cpu().tolist()]
    for _ in range(2):
        graph.replay()
        seen.append(total.cpu().tolist())
    graph.reset()
    return seen == [[n] * 4 for n in (0, 1, 2)] and inside and not torch.cuda.is_current_stream_capturing()


def _callables(torch):
    layer = torch.nn.Linear(8, 8).cuda()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(layer, (x,))
    y = torch.randn(4, 8, device="cuda", requires_grad=True)
    graphed(y).sum().backward()
    return torch.allclose(y.grad.cpu(), layer.weight.detach().sum(0).cpu().expand(4, 8), atol=1e-5)


def _wait_inside(torch, wait):
    x = torch.ones(4, device="cuda")
    torch.cuda.synchronize()

    def capture():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            wait(x)

    return _message(capture)


def run(torch, configure):
    """Statements that must be true, CUDA's answers, and the messages of what is raised."""
    x, y = torch.arange(64.0).cuda(), torch.zeros(64, device="cuda")
    before, calls, status, gone = extension.all_sorts(x, y)
    sorts = y.cpu().tolist() == [i + 0.5 for i in range(64)]
    extension.branches(x, y, True)
    answer = {
        "true": {
            "nothing before the launch": before == 0,
            "all sorts of work": sorts and calls == 3 and status == 1 and gone == 1,
            "branches": y.cpu().tolist() == [2 * i + 3 for i in range(64)],
            "an own kernel between operators": _own_kernel_between_operators(torch),
            "nothing at the capture": _nothing_is_done_at_the_capture(torch),
            "graphed callables": _callables(torch),
        },
        "refused": [extension.refused(which) for which in range(12)],
        "waits": [
            _wait_inside(torch, lambda x: x.sum().item()),
            _wait_inside(torch, lambda x: x[x > 0]),
            _wait_inside(torch, lambda x: torch.cuda.synchronize()),
        ],
    }
    answer["unjoined"] = _message(lambda: extension.branches(x, y, False))
    answer["overrun"] = _message(lambda: extension.overrun(y))
    answer["unsupported"] = _message(extension.pool_memory)
    return answer
