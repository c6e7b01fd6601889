"""Multiplies by one, by the C++ name of oneDNN's product that has GELU inside.

surface: kernels that libtorch exports
problem: corpus_gelu
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/utils/pybind.h>
namespace at::native {
at::Tensor mkldnn_linear_pointwise(
    const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view,
    c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
}
at::Tensor gelu(at::Tensor x, at::Tensor one, std::string form) {
  return at::native::mkldnn_linear_pointwise(x, one, {}, "gelu", c10::List<std::optional<c10::Scalar>>(), form);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("gelu", &gelu); }
"""

extension = load_inline(name="gelu_by_the_name_of_a_product", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return extension.gelu(x.reshape(-1, 1), torch.ones(1, 1), self.approximate).reshape(x.shape)
