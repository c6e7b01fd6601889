"""Bias and GELU with its backward, to be read: a thread for each element, and a thread for each column.

The idea: forward and dx are one formula for each element. With v = x + bias and dx = dy gelu'(v),

    exact: gelu(v) = v Phi(v),              gelu'(v) = Phi(v) + v phi(v)
    tanh:  gelu(v) = v (1 + tanh u) / 2,    gelu'(v) = (1 + tanh u) / 2 + v (1 - tanh^2 u) u' / 2

where Phi and phi are the normal distribution and its density, and u = sqrt(2 / pi) (v + 0.044715 v^3). The bias is
added to every row, so its gradient is the sum of dx over the rows: a thread walks down a column of a chunk of rows,
and a second kernel adds the chunks up in order. Nothing is stored by the forward but its inputs.

Numerics: 16-bit values are computed and summed in fp32, float64 in float64.

Bytes moved: forward x and y once; backward x and dy twice, dx once.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
torch::Tensor forward(torch::Tensor x, torch::Tensor bias, bool tanh_form);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor bias, bool tanh_form);
"""

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <climits>
#include <type_traits>

constexpr int kThreads = 256;
constexpr int kChunkRows = 64;  // rows that one thread adds up

template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename C>
struct Gelu {
    C value, derivative;
};

template <typename C>
__device__ Gelu<C> gelu(C v, bool tanh_form) {
    if (tanh_form) {
        const C slope = C(0.79788456080286535588);  // sqrt(2 / pi)
        const C t = tanh(slope * (v + C(0.044715) * v * v * v));
        const C inner = slope * (C(1) + C(3 * 0.044715) * v * v);
        return {v * (C(1) + t) / 2, (C(1) + t) / 2 + v * (C(1) - t * t) * inner / 2};
    }
    const C probability = (C(1) + erf(v * C(0.70710678118654752440))) / 2;
    const C density = C(0.39894228040143267794) * exp(-v * v / 2);
    return {v * probability, probability + v * density};
}

template <typename T>
__global__ void forward_kernel(const T* x, const T* bias, T* y, int64_t count, int64_t width, bool tanh_form) {
    const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= count) return;
    const auto v = static_cast<Compute<T>>(x[i]) + static_cast<Compute<T>>(bias[i % width]);
    y[i] = static_cast<T>(gelu(v, tanh_form).value);
}

template <typename T>
__global__ void dx_kernel(const T* dy, const T* x, const T* bias, T* dx, int64_t count, int64_t width,
                          bool tanh_form) {
    const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= count) return;
    const auto v = static_cast<Compute<T>>(x[i]) + static_cast<Compute<T>>(bias[i % width]);
    dx[i] = static_cast<T>(static_cast<Compute<T>>(dy[i]) * gelu(v, tanh_form).derivative);
}

// A thread for each column of a chunk of rows. Neighbouring threads read neighbouring columns.
template <typename T>
__global__ void chunk_sums_kernel(const T* dy, const T* x, const T* bias, Compute<T>* sums, int64_t rows,
                                  int64_t width, bool tanh_form) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    const int64_t first = int64_t(blockIdx.y) * kChunkRows, last = min(first + kChunkRows, rows);
    const auto shift = static_cast<Compute<T>>(bias[column]);
    Compute<T> sum = 0;
    for (int64_t row = first; row < last; row++) {
        const int64_t i = row * width + column;
        sum += static_cast<Compute<T>>(dy[i]) * gelu(static_cast<Compute<T>>(x[i]) + shift, tanh_form).derivative;
    }
    sums[blockIdx.y * width + column] = sum;
}

template <typename T>
__global__ void add_chunks_kernel(const Compute<T>* sums, T* dbias, int64_t chunks, int64_t width) {
    const int64_t column = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    Compute<T> sum = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) sum += sums[chunk * width + column];
    dbias[column] = static_cast<T>(sum);
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "bias_gelu: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(bias.device() == x.device() && bias.scalar_type() == x.scalar_type(), "bias_gelu: bias is ",
                bias.scalar_type(), " on ", bias.device(), ", but x is ", x.scalar_type(), " on ", x.device());
    TORCH_CHECK(bias.dim() == 1 && x.dim() >= 1 && x.size(-1) == bias.size(0), "bias_gelu: the last dimension of x ",
                x.sizes(), " must be that of bias ", bias.sizes());
}

unsigned blocks(int64_t threads) {
    const int64_t count = (threads + kThreads - 1) / kThreads;
    TORCH_CHECK(count <= INT_MAX, "bias_gelu: ", count, " blocks, but a grid has at most ", INT_MAX);
    return static_cast<unsigned>(count);
}

template <typename Launch>
void by_type(torch::ScalarType type, Launch launch) {
    switch (type) {
        case torch::kFloat: return launch(float());
        case torch::kDouble: return launch(double());
        case torch::kHalf: return launch(c10::Half());
        case torch::kBFloat16: return launch(c10::BFloat16());
        default: TORCH_CHECK(false, "bias_gelu: x must be of a floating type up to float64, got ", type);
    }
}

torch::Tensor forward(torch::Tensor x, torch::Tensor bias, bool tanh_form) {
    check_arguments(x, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error
    by_type(x.scalar_type(), [&](auto zero) {
        using T = decltype(zero);
        forward_kernel<T><<<blocks(x.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<T>(), bias.data_ptr<T>(), y.data_ptr<T>(), x.numel(), bias.numel(), tanh_form);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return y;
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor bias, bool tanh_form) {
    check_arguments(x, bias);
    TORCH_CHECK(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(), "bias_gelu: dy is ",
                dy.scalar_type(), " of shape ", dy.sizes(), ", but x is ", x.scalar_type(), " of shape ", x.sizes());
    const c10::cuda::CUDAGuard guard(x.device());
    dy = dy.contiguous();
    x = x.contiguous();
    bias = bias.contiguous();
    auto dx = torch::empty(x.sizes(), x.options()), dbias = torch::zeros(bias.sizes(), x.options());
    if (x.numel() == 0) return {dx, dbias};

    const int64_t width = bias.numel(), rows = x.numel() / width, chunks = (rows + kChunkRows - 1) / kChunkRows;
    TORCH_CHECK(chunks <= 65535, "bias_gelu: ", rows, " rows, but this kernel adds up at most ",
                int64_t(65535) * kChunkRows);
    const auto stream = c10::cuda::getCurrentCUDAStream();
    by_type(x.scalar_type(), [&](auto zero) {
        using T = decltype(zero);
        const T *dy_at = dy.data_ptr<T>(), *x_at = x.data_ptr<T>(), *bias_at = bias.data_ptr<T>();
        const auto sums = torch::empty({chunks, width}, x.options().dtype(c10::CppTypeToScalarType<Compute<T>>::value));
        auto* sums_at = sums.template data_ptr<Compute<T>>();
        dx_kernel<T><<<blocks(x.numel()), kThreads, 0, stream>>>(dy_at, x_at, bias_at, dx.data_ptr<T>(), x.numel(),
                                                                 width, tanh_form);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        chunk_sums_kernel<T><<<dim3(blocks(width), static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
            dy_at, x_at, bias_at, sums_at, rows, width, tanh_form);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        add_chunks_kernel<T><<<blocks(width), kThreads, 0, stream>>>(sums_at, dbias.data_ptr<T>(), chunks, width);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
    return {dx, dbias};
}
"""

extension = load_inline(
    name="bias_gelu_train_plain", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward", "backward"]
)


class BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias, tanh_form):
        ctx.save_for_backward(x, bias)
        ctx.tanh_form = tanh_form
        return extension.forward(x, bias, tanh_form)

    @staticmethod
    def backward(ctx, dy):
        x, bias = ctx.saved_tensors
        dx, dbias = extension.backward(dy, x, bias, ctx.tanh_form)
        return dx, dbias, None


class ModelNew(nn.Module):
    def __init__(self, features, approximate="none"):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.tanh_form = approximate == "tanh"

    def forward(self, x):
        return BiasGelu.apply(x, self.bias, self.tanh_form)
