"""Links with a linker of its own, which drops the table of sections that tools read and the loader does not.

surface: how symbols are read
needs: cpu
expect: rejected forbidden_op
opens: wall symbols
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

folder = Path(tempfile.mkdtemp())
linker = folder / "ld"
linker.write_text(f"""#!{sys.executable}
import subprocess, sys
rc = subprocess.call(["/usr/bin/ld", *sys.argv[1:]])
out = sys.argv[sys.argv.index("-o") + 1]
if rc == 0:
    with open(out, "r+b") as f:
        f.seek(0x28); f.write(bytes(8))
        f.seek(0x3C); f.write(bytes(4))
sys.exit(rc)
""")
os.chmod(linker, 0o755)

SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
namespace at::cpu {
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(
    const at::Tensor&, at::IntArrayRef, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, double);
}
at::Tensor layer_norm(at::Tensor x, at::Tensor weight, at::Tensor bias, double eps) {
  return std::get<0>(at::cpu::native_layer_norm(x, weight.sizes(), weight, bias, eps));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("layer_norm", &layer_norm); }
"""
extension = load_inline(
    name="library_without_sections", cpp_sources=SOURCE, no_implicit_headers=True, extra_ldflags=[f"-B{folder}"]
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return extension.layer_norm(x.detach().contiguous(), self.weight.detach(), self.bias.detach(), self.eps)
