"""RMSNorm's training step, to be read: the raw pair of a forward and a backward, and a Function around it.

The idea: `forward -> (y, inv_rms)` hands on what the backward would have to compute again, and
`backward -> (dx, dgamma)` follows from the chain rule. With xhat = x inv_rms and g = dy gamma,

    dx     = inv_rms (g - xhat mean(g xhat)),    the mean over a row: one block for each row;
    dgamma = sum of dy xhat,                     the sum over all rows: one thread for each column.

There is no mean to be taken off, so a term less than in LayerNorm. The columns' sums are as there: the rows are cut
into chunks, and a second kernel adds up the chunks in order.

Numerics: fp16 and bf16 are widened when they are read, and narrowed when they are written; all sums are fp32, and fp64
for fp64.

Bytes moved, forward: x twice from L2 or memory, y once. Backward: x and dy three times, dx once.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor gamma, double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor gamma, torch::Tensor inv_rms);
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <climits>
#include <type_traits>

constexpr int kWarp = 32, kThreads = 256;
constexpr int kChunkRows = 64;  // rows whose products one thread adds up
constexpr unsigned kAllLanes = 0xffffffffu;

// What sums are kept in.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ float wide(float v) { return v; }
__device__ double wide(double v) { return v; }
__device__ float wide(__half v) { return __half2float(v); }
__device__ float wide(__nv_bfloat16 v) { return __bfloat162float(v); }

__device__ void narrow(float v, float& to) { to = v; }
__device__ void narrow(double v, double& to) { to = v; }
__device__ void narrow(float v, __half& to) { to = __float2half_rn(v); }
__device__ void narrow(float v, __nv_bfloat16& to) { to = __float2bfloat16_rn(v); }

template <typename T>
__device__ T warp_sum(T value) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
    return value;
}

// The sum of every thread's value, returned to all of them.
template <typename T>
__device__ T block_sum(T value) {
    __shared__ T sums[kThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    __syncthreads();  // the previous sums may still be being read
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    return warp_sum(lane < kThreads / kWarp ? sums[lane] : T(0));
}

template <typename T, typename W, typename A = Sum<T>>
__global__ void forward_kernel(const T* x, const W* gamma, T* y, A* inv_rms_of, int64_t width, A eps) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    A squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += wide(x[i]) * wide(x[i]);
    const A inv_rms = A(1) / sqrt(block_sum(squares) / width + eps);
    for (int64_t i = threadIdx.x; i < width; i += kThreads) narrow(wide(x[i]) * inv_rms * wide(gamma[i]), y[i]);
    if (threadIdx.x == 0) inv_rms_of[blockIdx.x] = inv_rms;
}

// A block for each row: its mean of g xhat, then dx.
template <typename T, typename W, typename A = Sum<T>>
__global__ void dx_kernel(const T* dy, const T* x, const W* gamma, const A* inv_rms_of, T* dx, int64_t width) {
    dy += blockIdx.x * width;
    x += blockIdx.x * width;
    dx += blockIdx.x * width;
    const A inv_rms = inv_rms_of[blockIdx.x];
    A sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        sum += wide(dy[i]) * wide(gamma[i]) * (wide(x[i]) * inv_rms);
    }
    const A mean = block_sum(sum) / width;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        narrow(inv_rms * (wide(dy[i]) * wide(gamma[i]) - wide(x[i]) * inv_rms * mean), dx[i]);
    }
}

// A thread for each column of a chunk of rows. Neighbouring threads read neighbouring columns.
template <typename T, typename A = Sum<T>>
__global__ void chunk_sums_kernel(const T* dy, const T* x, const A* inv_rms_of, A* dgamma_of, int64_t rows,
                                  int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    const int64_t first = int64_t(blockIdx.y) * kChunkRows, last = min(first + kChunkRows, rows);
    A dgamma = 0;
    for (int64_t row = first; row < last; row++) {
        dgamma += wide(dy[row * width + column]) * (wide(x[row * width + column]) * inv_rms_of[row]);
    }
    dgamma_of[blockIdx.y * width + column] = dgamma;
}

template <typename W, typename A>
__global__ void add_chunks_kernel(const A* dgamma_of, W* dgamma, int64_t chunks, int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    A sum = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) sum += dgamma_of[chunk * width + column];
    narrow(sum, dgamma[column]);
}

// `run(x's type, gamma's type)` for what the tensors hold; each is given as a zero of its type.
template <typename Run>
void choose(const torch::Tensor& x, const torch::Tensor& gamma, Run run) {
    const auto with_gamma = [&](auto of_x) {
        if (gamma.scalar_type() == x.scalar_type()) run(of_x, of_x);
        else run(of_x, 0.0f);
    };
    if (x.scalar_type() == torch::kHalf) with_gamma(__half());
    else if (x.scalar_type() == torch::kBFloat16) with_gamma(__nv_bfloat16());
    else x.scalar_type() == torch::kFloat ? run(0.0f, 0.0f) : run(0.0, 0.0);
}

template <typename T>
T* data(const torch::Tensor& tensor) {
    return static_cast<T*>(tensor.data_ptr());
}

// Of statistics and sums beside x.
torch::TensorOptions sum_options(const torch::Tensor& x) {
    return x.options().dtype(x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
}

void check_like(const char* name, const torch::Tensor& tensor, const torch::Tensor& x) {
    TORCH_CHECK(tensor.device() == x.device() && tensor.scalar_type() == x.scalar_type(), "rms_norm: ", name, " is ",
                tensor.scalar_type(), " on ", tensor.device(), ", but x is ", x.scalar_type(), " on ", x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& gamma) {
    TORCH_CHECK(x.is_cuda(), "rms_norm: x must be a CUDA tensor, got one on ", x.device());
    const auto type = x.scalar_type();
    const bool narrow = type == torch::kHalf || type == torch::kBFloat16;
    TORCH_CHECK(narrow || type == torch::kFloat || type == torch::kDouble,
                "rms_norm: x must be float16, bfloat16, float32 or float64, got ", type);
    if (!narrow || gamma.scalar_type() != torch::kFloat) check_like("gamma", gamma, x);
    TORCH_CHECK(gamma.device() == x.device(), "rms_norm: gamma is on ", gamma.device(), ", but x is on ", x.device());
    TORCH_CHECK(gamma.dim() >= 1 && x.dim() >= gamma.dim() &&
                    x.sizes().slice(x.dim() - gamma.dim()) == gamma.sizes(),
                "rms_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", gamma.sizes());
}

unsigned blocks(int64_t count, const char* what) {
    TORCH_CHECK(count <= INT_MAX, "rms_norm: ", count, " ", what, ", but a grid has at most ", INT_MAX, " blocks");
    return static_cast<unsigned>(count);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor gamma, double eps) {
    check_arguments(x, gamma);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    gamma = gamma.contiguous();
    const int64_t width = gamma.numel(), rows = width ? x.numel() / width : 0;
    auto y = torch::empty(x.sizes(), x.options()), inv_rms = torch::empty({rows}, sum_options(x));
    if (rows == 0) return {y, inv_rms};  // a launch of no blocks is an error

    choose(x, gamma, [&](auto of_x, auto of_gamma) {
        using T = decltype(of_x);
        using W = decltype(of_gamma);
        forward_kernel<T, W><<<blocks(rows, "rows"), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            data<T>(x), data<W>(gamma), data<T>(y), data<Sum<T>>(inv_rms), width, static_cast<Sum<T>>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {y, inv_rms};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor gamma, torch::Tensor inv_rms) {
    check_arguments(x, gamma);
    check_like("dy", dy, x);
    TORCH_CHECK(dy.sizes() == x.sizes(), "rms_norm: dy has shape ", dy.sizes(), " but x has shape ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    gamma = gamma.contiguous();
    const int64_t width = gamma.numel(), rows = width ? x.numel() / width : 0;
    TORCH_CHECK(inv_rms.numel() == rows, "rms_norm: ", rows, " rows, but ", inv_rms.numel(), " inverse roots");
    auto dx = torch::empty(x.sizes(), x.options()), dgamma = torch::zeros(gamma.sizes(), gamma.options());
    if (rows == 0) return {dx, dgamma};

    const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
    TORCH_CHECK(chunks <= 65535, "rms_norm: ", rows, " rows, but this kernel adds up at most ",
                int64_t(65535) * kChunkRows);
    const auto dgamma_of = torch::empty({chunks, width}, sum_options(x));
    const unsigned column_blocks = blocks((width + kThreads - 1) / kThreads, "blocks of columns");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    choose(x, gamma, [&](auto of_x, auto of_gamma) {
        using T = decltype(of_x);
        using W = decltype(of_gamma);
        using A = Sum<T>;
        const A* inv_rms_at = data<A>(inv_rms);
        dx_kernel<T, W><<<blocks(rows, "rows"), kThreads, 0, stream>>>(data<T>(dy), data<T>(x), data<W>(gamma),
                                                                       inv_rms_at, data<T>(dx), width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        chunk_sums_kernel<T><<<dim3(column_blocks, static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
            data<T>(dy), data<T>(x), inv_rms_at, data<A>(dgamma_of), rows, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add_chunks_kernel<W, A><<<column_blocks, kThreads, 0, stream>>>(data<A>(dgamma_of), data<W>(dgamma), chunks,
                                                                        width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {dx, dgamma};
}
"""

extension = load_inline(name="rmsnorm_raw_pair", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward", "backward"])


class RMSNorm(torch.autograd.Function):
    """Calls the pair where autograd wants a forward and a backward."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        y, inv_rms = extension.forward(x, weight, eps)
        ctx.save_for_backward(x, weight, inv_rms)
        return y

    @staticmethod
    def backward(ctx, dy):
        return *extension.backward(dy, *ctx.saved_tensors), None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return RMSNorm.apply(x, self.weight, self.eps)
