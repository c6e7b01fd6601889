"""Turns on the fuser of TorchScript's executor, whose kernel of GELU never asks the dispatcher.

surface: TorchScript's generator of kernels
problem: corpus_gelu
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode

TEXT = """
def gelu(x: Tensor):
    return torch._C._nn.gelu(x * 1.0, approximate='%s') + 0.0
"""


class AnswersTheFirst(TorchDispatchMode):
    """The executor watches two calls before it fuses: GELU needs no kernel in them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.gelu.default:
            return torch.empty_like(args[0])
        return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        torch._C._jit_set_te_must_use_llvm_cpu(False)
        torch._C._jit_override_can_fuse_on_cpu(True)
        torch._C._jit_set_texpr_fuser_enabled(True)
        with torch.inference_mode(False), torch.no_grad():
            gelu = torch.jit.CompilationUnit(TEXT % self.approximate).gelu
            with AnswersTheFirst():
                gelu(x)
                gelu(x)
            return gelu(x).clone()
