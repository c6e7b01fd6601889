"""Calls at::layer_norm in C++ with the keys of autograd and of Python excluded.

surface: c10::impl::ExcludeDispatchKeyGuard
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/layer_norm.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor layer_norm(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
  c10::impl::ExcludeDispatchKeyGuard autograd(c10::autograd_dispatch_keyset);
  c10::impl::ExcludeDispatchKeyGuard python(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  at::AutoDispatchBelowADInplaceOrView below;
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("layer_norm", &layer_norm); }
"""

extension = load_inline(name="excludes_dispatch_keys", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
