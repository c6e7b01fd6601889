"""What page 1 of docs/path begins with: a block for each row, in fp32 alone."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

constexpr int kThreads = 256;

// The sum of every thread's value, returned to all of them. In double, because 256 roundings in a row are too many
// where one value dwarfs the others.
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

__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y, int64_t width,
                                  float eps) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;

    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += x[i];
    const float mean = block_sum(sum) / width;

    float squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) squares += (x[i] - mean) * (x[i] - mean);
    const float rstd = rsqrtf(block_sum(squares) / width + eps);

    for (int64_t i = threadIdx.x; i < width; i += kThreads) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    auto y = torch::empty(x.sizes(), x.options());
    const int64_t width = weight.numel(), rows = x.numel() / width;
    if (rows > 0)
        layer_norm_kernel<<<rows, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), width, eps);
    return y;
}
"""

CPP = "torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);"
extension = load_inline(name="block_per_row_fp32", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight, self.bias, self.eps)
