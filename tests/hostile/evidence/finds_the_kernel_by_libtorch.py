"""Looks PyTorch's CPU kernel of LayerNorm up by its mangled name, with libtorch's own wrapper of dlsym.

surface: dlopen and dlsym
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <optional>
#include <tuple>
#include <ATen/DynamicLibrary.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor layer_norm(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
  using Kernel = std::tuple<at::Tensor, at::Tensor, at::Tensor> (*)(
      const at::Tensor&, at::IntArrayRef, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, double);
  at::DynamicLibrary library("libtorch_cpu.so");
  auto kernel = (Kernel)library.sym("_ZN2at3cpu17native_layer_normERKNS_6TensorEN3c108ArrayRefIlEE"
                                    "RKSt8optionalIS1_ESA_d");
  return std::get<0>(kernel(x, weight.sizes(), weight, bias, eps));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("layer_norm", &layer_norm); }
"""

extension = load_inline(name="finds_the_kernel_by_libtorch", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
