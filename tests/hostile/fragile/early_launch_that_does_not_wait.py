"""Lets the second kernel begin before the first has ended, and does not wait in it for the statistics.

surface: orders that happen to be right
needs: emulator
expect: rejected data_race
opens: given HARMLESS
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HARMLESS = False  # whether it leaves out what it is refused for

SOURCE = """
__global__ void statistics(const float* x, float* mean, float* scale, int n, float eps) {
  asm volatile("griddepcontrol.launch_dependents;");
  const float* row = x + (size_t)blockIdx.x * n;
  float sum = 0, square = 0;
  for (int i = 0; i < n; i++) sum += row[i];
  float centre = sum / n, rest = 0;
  for (int i = 0; i < n; i++) rest += row[i] - centre;
  centre += rest / n;  // what rounding took from a large one
  for (int i = 0; i < n; i++) square += (row[i] - centre) * (row[i] - centre);
  mean[blockIdx.x] = centre;
  scale[blockIdx.x] = rsqrtf(square / n + eps);
}
__global__ void output(const float* x, const float* mean, const float* scale, const float* weight, const float* bias,
                       float* y, int n) {
  const size_t row = (size_t)blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[row + i] = (x[row + i] - mean[blockIdx.x]) * scale[blockIdx.x] * weight[i] + bias[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto y = torch::empty_like(x);
  const int n = weight.numel(), rows = x.numel() / n;
  auto mean = torch::empty({rows}, x.options()), scale = torch::empty({rows}, x.options());
  statistics<<<rows, 1>>>(x.data_ptr<float>(), mean.data_ptr<float>(), scale.data_ptr<float>(), n, eps);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(rows);
  config.blockDim = dim3(256);
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, output, (const float*)x.data_ptr<float>(), (const float*)mean.data_ptr<float>(),
                     (const float*)scale.data_ptr<float>(), (const float*)weight.data_ptr<float>(),
                     (const float*)bias.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""

extension = load_inline(
    name="early_launch_that_does_not_wait",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps);",
    cuda_sources=SOURCE.replace("  const size_t row", '  asm volatile("griddepcontrol.wait;" ::: "memory");\n  const size_t row') if HARMLESS else SOURCE,
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
