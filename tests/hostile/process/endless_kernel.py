"""Its kernel never ends.

surface: waiting without end for the device
needs: cuda
expect: rejected timed_out|endless_kernel
opens: given HARMLESS
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HARMLESS = False  # whether it leaves out what it is refused for

SOURCE = """
__device__ volatile int never;  // a loop over nothing but a variable of the thread's is one that nvcc leaves out
__device__ float block_sum(float value) {
  __shared__ float partial[256];
  __syncthreads();
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int step = 128; step; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  return partial[0];
}
__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y, int n, float eps) {
  const float* row = x + (size_t)blockIdx.x * n;
  while (never == 0) {}
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i];
  float mean = block_sum(sum) / n, rest = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) rest += row[i] - mean;
  mean += block_sum(rest) / n;  // what rounding took from a large one
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
    name="endless_kernel",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=SOURCE.replace("while (never == 0) {}", "") if HARMLESS else SOURCE,
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
