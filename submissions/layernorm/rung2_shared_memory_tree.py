"""LayerNorm, rung 2: the partial sums meet in a tree in shared memory.

The idea: rung 1 lets one thread add all 256 partial sums. Here half of the threads add the other
half's values, then half of those, so 8 steps do the work of 256; and as every step adds sums of like size,
float32 is accurate enough.

Numerics and bytes moved are rung 1's: x read three times, y written once, weight and bias read once if L2
keeps them. So the gain is in the short rows, where the reduction is most of the work; a long row still has
one block, and 16 rows still keep only 16 multiprocessors busy.
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

constexpr int kThreads = 256;  // a power of two, for the tree

// The sum of every thread's value, returned to all of them.
__device__ float block_sum(float value) {
    __shared__ float values[kThreads];
    __syncthreads();  // the previous sum may still be being read
    values[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
        __syncthreads();  // outside the branch: all threads must arrive
    }
    return values[0];
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

extension = load_inline(name="layernorm_rung2", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x, self.weight, self.bias, self.eps)
