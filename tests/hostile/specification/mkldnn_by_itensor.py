"""Wraps dense tensors in oneDNN's layout by at::native's own helpers, for TorchScript's LayerNorm of that layout.

surface: functions of libtorch that make other layouts
needs: cpu
expect: rejected raised
opens: wall operators
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
// No header of ideep's is shipped: a class that is as large, which is returned and passed by address.
namespace ideep { struct tensor { alignas(64) char raw[4096]; tensor(); tensor(tensor&&); ~tensor() {} }; }
namespace at::native {
ideep::tensor itensor_view_from_dense(const at::Tensor&, bool);
at::Tensor new_with_itensor_mkldnn(ideep::tensor&&, std::optional<at::ScalarType>, std::optional<at::Device>);
}
at::Tensor wrap(at::Tensor x) {
  return at::native::new_with_itensor_mkldnn(at::native::itensor_view_from_dense(x, false), x.scalar_type(), x.device());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("wrap", &wrap); }
"""
extension = load_inline(name="mkldnn_by_itensor", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        n = self.weight.numel()
        dense = (x.detach().reshape(1, -1, n).contiguous(), self.weight.detach().reshape(-1), self.bias.detach().reshape(-1))
        rows, weight, bias = map(extension.wrap, dense)
        y = torch.ops.prim.MKLDNNLayerNorm(rows, [n], weight, bias, self.eps, False)
        return y.to_dense().reshape(x.shape)
