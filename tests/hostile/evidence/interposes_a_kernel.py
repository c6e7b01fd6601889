"""Defines a weak function of the name of PyTorch's kernel, whose place libtorch's own takes in global scope.

surface: definitions that another library's precede
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"), ctypes.RTLD_GLOBAL)

SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
namespace at::cpu {
__attribute__((weak, noinline, visibility("default")))
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(
    const at::Tensor& x, at::IntArrayRef, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, double) {
  return {x, x, x};
}
}
at::Tensor layer_norm(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
  return std::get<0>(at::cpu::native_layer_norm(x, weight.sizes(), weight, bias, eps));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("layer_norm", &layer_norm); }
"""
extension = load_inline(name="interposes_a_kernel", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.detach().contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
