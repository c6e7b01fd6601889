"""Writes out of bounds that no guard page stops: what is found of each, and where."""

from torch.utils.cpp_extension import load_inline

from harness.device import emulator

CUDA = r"""
__global__ void behind_an_allocation(float* y, int n) {
    for (int i = threadIdx.x; i <= n; i += blockDim.x) y[i] = 1.f;
}
__global__ void before_an_allocation(float* y, int n) { y[int(threadIdx.x) - 1] = 1.f; }
__global__ void across_the_end(double* y, int n) { y[threadIdx.x] = 1.; }
__global__ void behind_a_variable(float* y, int n) {
    __shared__ float s[32];
    volatile float* p = s;
    p[threadIdx.x] = 1.f;
    __syncthreads();
    if (threadIdx.x < 32) y[threadIdx.x] = p[threadIdx.x];
}
__global__ void behind_dynamic_memory(float* y, int n) {
    extern __shared__ volatile float dynamic[];
    dynamic[threadIdx.x] = 1.f;
    __syncthreads();
    if (threadIdx.x < 31) y[threadIdx.x] = dynamic[threadIdx.x];
}
void run(torch::Tensor y, int64_t which) {
    float* to = y.data_ptr<float>();
    const int n = y.numel();
    if (which == 0) behind_an_allocation<<<1, 64>>>(to, n);
    if (which == 1) before_an_allocation<<<1, 64>>>(to, n);
    if (which == 2) across_the_end<<<1, n / 2 + 1>>>(reinterpret_cast<double*>(to), n);
    if (which == 3) behind_a_variable<<<1, 33>>>(to, n);
    if (which == 4) behind_dynamic_memory<<<1, 32, 31 * sizeof(float)>>>(to, n);
}
"""
extension = load_inline(
    name="overruns", cpp_sources="void run(torch::Tensor y, int64_t which);", cuda_sources=CUDA, functions=["run"]
)


def run(torch):
    """By kernel what its first finding says, its block and its thread."""
    seen = {}
    for which in range(5):
        y = torch.zeros(231, device="cuda")  # 924 bytes, 4 short of what would end at the guard page
        try:
            extension.run(y, which)
        except RuntimeError:
            finding = emulator.take_findings()[0]
            seen[finding.kernel] = [finding.message, finding.block, finding.thread]
    return seen
