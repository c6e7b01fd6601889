"""Calls PyTorch's CPU kernel of LayerNorm by its C++ name, past the dispatcher.

surface: kernels that libtorch exports
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/csrc/utils/pybind.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
at::Tensor layer_norm(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
  return std::get<0>(at::cpu::native_layer_norm(x, weight.sizes(), weight, bias, eps));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("layer_norm", &layer_norm); }
"""

extension = load_inline(name="kernel_past_the_dispatcher", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
