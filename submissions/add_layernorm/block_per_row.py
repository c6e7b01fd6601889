"""Residual add and LayerNorm, a block per row: the sum is written on the way to its statistics.

The idea: unfused, the sum goes to memory for the next residual branch and is read back by the norm. Here the
pass that adds also takes the mean. The other two passes read the sum that the same thread has written, which
needs no barrier: a thread sees its own writes.

Numerics: the sum is rounded to the dtype of x before it is normalised, as PyTorch rounds it, so that both
results speak of the same values. Statistics are `opmath_type`, fp32 for 16-bit types, and of differences from
the row's first element, with a second pass that corrects what the rounded mean missed (Chan, Golub and LeVeque,
The American Statistician 37, 1983).

Bytes moved: x and residual read once, the sum written once and read twice, y written once.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = """
std::tuple<torch::Tensor, torch::Tensor> add_layer_norm(torch::Tensor x, torch::Tensor residual,
                                                        torch::Tensor weight, torch::Tensor bias, double eps);
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

template <typename T>
__global__ void add_layer_norm_kernel(const T* x, const T* residual, const T* weight, const T* bias, T* y, T* total,
                                      int64_t width, at::opmath_type<T> eps) {
    using Float = at::opmath_type<T>;
    x += blockIdx.x * width;
    residual += blockIdx.x * width;
    y += blockIdx.x * width;
    total += blockIdx.x * width;

    const Float pivot = static_cast<Float>(x[0]) + static_cast<Float>(residual[0]);
    Float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        total[i] = static_cast<T>(static_cast<Float>(x[i]) + static_cast<Float>(residual[i]));
        sum += static_cast<Float>(total[i]) - pivot;
    }
    const Float mean = pivot + block_sum(sum) / width;

    Float deviations = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const Float d = static_cast<Float>(total[i]) - mean;
        deviations += d;
        squares += d * d;
    }
    const Float correction = block_sum(deviations) / width;  // what the rounded mean missed
    const Float variance = max(block_sum(squares) / width - correction * correction, Float(0));
    const Float rstd = rsqrt(variance + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const Float normalised = ((static_cast<Float>(total[i]) - mean) - correction) * rstd;
        y[i] = static_cast<T>(normalised * static_cast<Float>(weight[i]) + static_cast<Float>(bias[i]));
    }
}

void check_parameter(const char* name, const torch::Tensor& parameter, const torch::Tensor& x) {
    TORCH_CHECK(parameter.device() == x.device() && parameter.scalar_type() == x.scalar_type(), "add_layer_norm: ",
                name, " is ", parameter.scalar_type(), " on ", parameter.device(), ", but x is ", x.scalar_type(),
                " on ", x.device());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight,
                     const torch::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "add_layer_norm: x must be a CUDA tensor, got one on ", x.device());
    check_parameter("residual", residual, x);
    check_parameter("weight", weight, x);
    check_parameter("bias", bias, x);
    TORCH_CHECK(residual.sizes() == x.sizes(), "add_layer_norm: residual has shape ", residual.sizes(),
                " but x has shape ", x.sizes());
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "add_layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ", weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "add_layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
}

std::tuple<torch::Tensor, torch::Tensor> add_layer_norm(torch::Tensor x, torch::Tensor residual,
                                                        torch::Tensor weight, torch::Tensor bias, double eps) {
    check_arguments(x, residual, weight, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    residual = residual.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options()), total = torch::empty_like(y);
    if (y.numel() == 0) return {y, total};  // a launch of no blocks is an error

    const int64_t width = weight.numel(), rows = x.numel() / width;
    TORCH_CHECK(rows <= INT_MAX, "add_layer_norm: ", rows, " rows, but a grid has at most ", INT_MAX, " blocks");
    const auto stream = c10::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "add_layer_norm", [&] {
        add_layer_norm_kernel<scalar_t><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
            x.data_ptr<scalar_t>(), residual.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(),
            bias.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), total.data_ptr<scalar_t>(), width, eps);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {y, total};
}
"""

extension = load_inline(
    name="add_layernorm_block_per_row", cpp_sources=CPP, cuda_sources=CUDA, functions=["add_layer_norm"]
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x, residual):
        return extension.add_layer_norm(x, residual, self.weight, self.bias, self.eps)
