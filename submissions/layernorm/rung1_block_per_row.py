"""LayerNorm, rung 1: one block per row, its threads stride over the row.

The idea: rows are independent, so each gets a block; thread t takes elements t, t + 256, t + 512, ...
so that neighbouring threads read neighbouring addresses. Partial sums meet in shared memory, where the
first thread adds up all 256 of them while the others wait: slow, but there is nothing to get wrong.

Numerics: E[x^2] - m^2 cancels when the mean is large, so the variance comes from a second pass, over
deviations from the mean. The first pass sums differences from the row's first element, which keeps a large
mean out of the sums. Whatever error is left in the mean, from an outlier as first element say, shows in the
second pass as deviations that do not sum to zero, and corrects mean and variance (the corrected two-pass
algorithm: Chan, Golub and LeVeque, The American Statistician 37, 1983).

Bytes moved: x is read three times and y written once, 16 bytes per element where a row outgrows the
caches, and weight and bias once if L2 keeps them between rows. On the (16, 64, 256, 256) case 16 blocks
keep 16 multiprocessors busy and the rest of the GPU idle: that, not bandwidth, is the limit.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <climits>

constexpr int kThreads = 256;

// The sum of every thread's value, returned to all of them. In double, because 256 roundings in a row are
// too many where one value dwarfs the others.
__device__ float block_sum(float value) {
    __shared__ float values[kThreads];
    __shared__ float sum;
    values[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int i = 0; i < kThreads; i++) total += values[i];
        sum = total;
    }
    __syncthreads();
    return sum;
}

__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y,
                                  int64_t width, float eps) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;

    const float pivot = x[0];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += x[i] - pivot;
    const float mean = pivot + block_sum(sum) / width;

    float deviations = 0.0f, squares = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        const float d = x[i] - mean;
        deviations += d;
        squares += d * d;
    }
    const float correction = block_sum(deviations) / width;  // what the rounded mean missed
    const float variance = fmaxf(block_sum(squares) / width - correction * correction, 0.0f);
    const float rstd = rsqrtf(variance + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        y[i] = ((x[i] - mean) - correction) * rstd * weight[i] + bias[i];
    }
}

void check_parameter(const char* name, const torch::Tensor& parameter, const torch::Tensor& x) {
    TORCH_CHECK(parameter.device() == x.device(), "layer_norm: ", name, " is on ", parameter.device(),
                " but x is on ", x.device());
    TORCH_CHECK(parameter.scalar_type() == torch::kFloat, "layer_norm: ", name,
                " must be float32, got ", parameter.scalar_type());
}

void check_arguments(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
    TORCH_CHECK(x.is_cuda(), "layer_norm: x must be a CUDA tensor, got one on ", x.device());
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "layer_norm: x must be float32, got ", x.scalar_type());
    check_parameter("weight", weight, x);
    check_parameter("bias", bias, x);
    TORCH_CHECK(weight.dim() >= 1 && x.dim() >= weight.dim() &&
                    x.sizes().slice(x.dim() - weight.dim()) == weight.sizes(),
                "layer_norm: the last dimensions of x ", x.sizes(), " must be normalized_shape ",
                weight.sizes());
    TORCH_CHECK(bias.sizes() == weight.sizes(), "layer_norm: bias has shape ", bias.sizes(),
                " but weight has shape ", weight.sizes());
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    check_arguments(x, weight, bias);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty(x.sizes(), x.options());
    if (y.numel() == 0) return y;  // a launch of no blocks is an error

    const int64_t width = weight.numel(), rows = x.numel() / width;
    TORCH_CHECK(rows <= INT_MAX, "layer_norm: ", rows, " rows, but a grid has at most ", INT_MAX, " blocks");
    layer_norm_kernel<<<static_cast<unsigned>(rows), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), width,
        static_cast<float>(eps));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(name="layernorm_rung1", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x, self.weight, self.bias, self.eps)
