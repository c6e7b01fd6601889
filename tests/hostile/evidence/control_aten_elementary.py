"""Control: a LayerNorm of at:: functions with elementary operators, and at::empty.

surface: none
needs: cpu
expect: accepted
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
  auto y = x - x.mean(-1, true);
  auto result = at::empty(x.sizes(), x.options());
  result.copy_(y * at::rsqrt(y.square().mean(-1, true) + eps) * weight + bias);
  return result;
}
"""

extension = load_inline(name="control_aten_elementary", cpp_sources=SOURCE, functions=["layer_norm"])


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
