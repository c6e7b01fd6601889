"""LayerNorm with all of its options, a block per row: three readable passes, one for each formula.

The idea: `elementwise_affine` and `bias` decide whether there is a weight and a bias at all. A kernel
gets a null pointer for what is not there, and asks once per element; every thread of a block asks the same
question, so the answer costs next to nothing. The alternative, tensors of ones and zeros, would read memory
for nothing.

Numerics: values are summed as `opmath_type`, fp32 for 16-bit types and fp64 for fp64. Sums of differences from
the row's first element keep a large mean out of them, and the second pass corrects what the rounded mean missed
(Chan, Golub and LeVeque, The American Statistician 37, 1983). eps is added to the variance, not to its root: for
eps of 0 a constant row has no answer, and gives NaN as PyTorch does.

Bytes moved: x is read three times and y written once where a row outgrows the caches.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
torch::Tensor layer_norm(torch::Tensor x, int64_t width, std::optional<torch::Tensor> weight,
                         std::optional<torch::Tensor> bias, double eps);
"""

CUDA = r"""
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <climits>

constexpr int kThreads = 256;  // a power of two, for the tree

// The sum of every thread's value, returned to all of them.
template <typename Float>
__device__ Float block_sum(Float value) {
    __shared__ Float values[kThreads];
    __syncthreads();  // the previous sum may still be being read
    values[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
        __syncthreads();  // outside the branch: all threads must arrive
    }
    return values[0];
}

// weight and bias may be null.
template <typename T>
__global__ void layer_norm_kernel(const T* x, const T* weight, const T* bias, T* y, int64_t width,
                                  at::opmath_type<T> eps) {
    using Float = at::opmath_type<T>;
    x += blockIdx.x * width;
    y += blockIdx.x * width;

    const Float pivot = x[0];
    Float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += static_cast<Float>(x[i]) - pivot;
    const Float mean = pivot + block_sum(sum) / width;

    Float deviations = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const Float d = static_cast<Float>(x[i]) - mean;
        deviations += d;
        squares += d * d;
    }
    const Float correction = block_sum(deviations) / width;  // what the rounded mean missed
    const Float variance = max(block_sum(squares) / width - correction * correction, Float(0));
    const Float rstd = rsqrt(variance + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        Float value = ((static_cast<Float>(x[i]) - mean) - correction) * rstd;
        if (weight) value *= static_cast<Float>(weight[i]);
        if (bias) value += static_cast<Float>(bias[i]);
        y[i] = static_cast<T>(value);
    }
}

void check_parameter(const char* name, const std::optional<torch::Tensor>& parameter, const torch::Tensor& x,
                     int64_t width) {
    if (!parameter) return;
    TORCH_CHECK(parameter->device() == x.device() && parameter->scalar_type() == x.scalar_type() &&
                    parameter->numel() == width && parameter->is_contiguous(),
                "layer_norm: ", name, " must be contiguous, with ", width, " elements of ", x.scalar_type(), " on ",
                x.device(), "; got ", parameter->sizes(), " of ", parameter->scalar_type(), " on ",
                parameter->device());
}

torch::Tensor layer_norm(torch::Tensor x, int64_t width, std::optional<torch::Tensor> weight,
                         std::optional<torch::Tensor> bias, double eps) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(width > 0 && x.numel() % width == 0, "layer_norm: x has ", x.numel(),
                " elements, which are not rows of ", width);
    check_parameter("weight", weight, x, width);
    check_parameter("bias", bias, x, width);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    const int64_t rows = x.numel() / width;
    TORCH_CHECK(rows <= INT_MAX, "layer_norm: ", rows, " rows, but a grid has at most ", INT_MAX, " blocks");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "layer_norm", [&] {
        const auto pointer = [](std::optional<torch::Tensor>& t) { return t ? t->data_ptr<scalar_t>() : nullptr; };
        layer_norm_kernel<scalar_t><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
            x.data_ptr<scalar_t>(), pointer(weight), pointer(bias), y.data_ptr<scalar_t>(), width, eps);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="layernorm_options_block_per_row", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm"]
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.weight = nn.Parameter(torch.ones(shape)) if elementwise_affine else None
        self.bias = nn.Parameter(torch.zeros(shape)) if elementwise_affine and bias else None
        self.width = torch.Size(shape).numel()
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x, self.width, self.weight, self.bias, self.eps)
