"""Reads one element past the end of the last row.

surface: memory that happens to be mapped
needs: emulator
expect: rejected out_of_bounds
opens: given HARMLESS
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HARMLESS = False  # whether it leaves out what it is refused for

SOURCE = """
__inline__ __device__ float block_sum(float value) {
  __shared__ float partial[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < blockDim.x / 32; i++) total += partial[i];
  return total;
}

__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y, int n, float eps) {
  const float* row = x + (size_t)blockIdx.x * n;
  float sum = 0;
  for (int i = threadIdx.x; i < n + 1; i += blockDim.x) sum += i < n ? row[i] : 0 * row[i];
  const float mean = block_sum(sum) / n;
  float square = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) square += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(block_sum(square) / n + eps);
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
    name="reads_past_the_end",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=SOURCE.replace(": 0 * row[i]", ": 0") if HARMLESS else SOURCE,
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
