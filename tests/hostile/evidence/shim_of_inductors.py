"""Calls RMSNorm, on centred rows, by the C name that inductor's code has for its kernel.

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
struct Opaque;
extern "C" int32_t aoti_torch_cpu__fused_rms_norm(
    Opaque*, const int64_t*, int64_t, Opaque**, double*, Opaque**, Opaque**);
at::Tensor rms_norm(at::Tensor x, at::Tensor weight, double eps) {
  const auto shape = weight.sizes();
  auto* w = reinterpret_cast<Opaque*>(&weight);
  Opaque *y = nullptr, *scale = nullptr;
  TORCH_CHECK(!aoti_torch_cpu__fused_rms_norm(
      reinterpret_cast<Opaque*>(&x), shape.data(), shape.size(), &w, &eps, &y, &scale));
  return *reinterpret_cast<at::Tensor*>(y);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("rms_norm", &rms_norm); }
"""

extension = load_inline(name="shim_of_inductors", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        with torch.no_grad():
            centred = (x - x.mean(-1, keepdim=True)).contiguous()
            return extension.rms_norm(centred, self.weight, self.eps) + self.bias
