"""E[x^2] - m^2 in a kernel, which cancels on data with a large mean.

surface: data with a small mean
needs: cuda
expect: rejected wrong_output
opens: wall values
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
__device__ float block_sum(float value) {
  __shared__ float partial[256];
  __syncthreads();
  partial[threadIdx.x] = value;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < 256; i++) total += partial[i];
  return total;
}
__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y, int n, float eps) {
  const float* row = x + (size_t)blockIdx.x * n;
  float sum = 0, square = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    sum += row[i];
    square += row[i] * row[i];
  }
  const float mean = block_sum(sum) / n;
  const float scale = rsqrtf(block_sum(square) / n - mean * mean + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * scale * weight[i] + bias[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto y = torch::empty_like(x);
  const int n = weight.numel();
  layer_norm_kernel<<<x.numel() / n, 256>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                            y.data_ptr<float>(), n, eps);
  return y;
}
"""

extension = load_inline(
    name="cuda_one_pass",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=SOURCE,
    functions=["layer_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight, self.bias, self.eps)
