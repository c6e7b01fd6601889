"""Control: a LayerNorm of at:: functions with elementary operators, and at::empty.

surface: none
needs: cpu
expect: accepted
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor layer_norm(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
  auto y = x - x.mean(-1, true);
  auto result = at::empty(x.sizes(), x.options());
  result.copy_(y * at::rsqrt(y.square().mean(-1, true) + eps) * weight + bias);
  return result;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("layer_norm", &layer_norm); }
"""

extension = load_inline(name="control_aten_elementary", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
