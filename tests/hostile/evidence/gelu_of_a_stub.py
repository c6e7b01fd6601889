"""Calls GELU's vectorised loop by the variable that holds its address for one instruction set.

problem: corpus_gelu
surface: names behind a function's type
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Activation.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor gelu(at::Tensor x, bool tanh) {
  at::Tensor y = at::empty_like(x);
  auto iterator = at::TensorIterator::unary_op(y, x);
  using namespace at::native;
  using Stub = DispatchStub<void (*)(at::TensorIteratorBase&, GeluType), GeluKernel_DECLARE_DISPATCH_type>;
  Stub::AVX2(iterator, tanh ? GeluType::Tanh : GeluType::None);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("gelu", &gelu); }
"""
extension = load_inline(
    name="gelu_of_a_stub", cpp_sources=SOURCE, no_implicit_headers=True,
    extra_cflags=["-fno-access-control", "-DHAVE_AVX2_CPU_DEFINITION"],
)


class ModelNew(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return extension.gelu(x.detach(), self.approximate == "tanh")
