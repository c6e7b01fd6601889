"""LayerNorm's forward for a training step: y, and for each row its mean and 1 / sqrt(variance + eps).

The idea: a block has the row's statistics in every thread anyway, so handing them on costs two stores a row. A backward
then need not read x twice to compute them again.

Numerics: the mean is summed as deviations from the row's first element, the variance in a second pass.

Bytes moved: x three times from L2 or memory, y once.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = "std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"

CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <climits>

constexpr int kWarp = 32, kThreads = 256;

// The sum of a warp's values, in every lane: each step adds the value of the lane across.
__device__ float warp_sum(float value) {
    for (int across = kWarp / 2; across > 0; across /= 2) value += __shfl_xor_sync(0xffffffffu, value, across);
    return value;
}

// The sum of a block's values, in every thread.
__device__ float block_sum(float value) {
    __shared__ float sums[kThreads / kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    __syncthreads();  // the sums before may still be being read
    if (lane == 0) sums[warp] = value;
    __syncthreads();
    return warp_sum(lane < kThreads / kWarp ? sums[lane] : 0.0f);
}

__global__ void __launch_bounds__(kThreads) forward_kernel(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, float* __restrict__ mean_of, float* __restrict__ inv_std_of, int64_t width, float eps) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    const float pivot = x[0];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += x[i] - pivot;
    const float mean = pivot + block_sum(sum) / width;

    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += (x[i] - mean) * (x[i] - mean);
    const float inv_std = 1.0f / sqrtf(block_sum(squares) / width + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) y[i] = (x[i] - mean) * inv_std * weight[i] + bias[i];
    if (threadIdx.x == 0) {
        mean_of[blockIdx.x] = mean;
        inv_std_of[blockIdx.x] = inv_std;
    }
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat32, "x must be contiguous fp32");
    const auto leading = x.sizes().slice(0, x.dim() - weight.dim());
    const int64_t width = weight.numel(), rows = x.numel() / width;
    TORCH_CHECK(rows <= INT_MAX, "too many rows for one grid");
    auto y = torch::empty_like(x);
    auto mean = torch::empty(leading, x.options()), inv_std = torch::empty(leading, x.options());
    if (rows == 0) return {y, mean, inv_std};  // a launch of no blocks is an error
    const c10::cuda::CUDAGuard guard(x.device());
    forward_kernel<<<rows, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
        mean.data_ptr<float>(), inv_std.data_ptr<float>(), width, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {y, mean, inv_std};
}
"""

extension = load_inline(name="layernorm_forward", cpp_sources=CPP, cuda_sources=CUDA, functions=["forward"])


class ModelNew(nn.Module):
    """nn.LayerNorm that gives (y, mean, inv_std)."""

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y, mean, inv_std = extension.forward(x.contiguous(), self.weight, self.bias, self.eps)
        return y, mean, inv_std
