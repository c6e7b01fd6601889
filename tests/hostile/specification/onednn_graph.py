"""Has oneDNN's graphs run torch.layer_norm, whose one call by the dispatcher, while it is profiled, it answers itself.

surface: interpreters with operators of their own
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn
from torch.utils._python_dispatch import TorchDispatchMode


class Answers(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.native_layer_norm.default:
            return torch.empty_like(args[0]), torch.empty(1), torch.empty(1)
        return func(*args, **(kwargs or {}))


def fused(x, w, b, eps):
    torch._C._jit_set_llga_enabled(True)
    text = f"def f(x: Tensor, w: Tensor, b: Tensor):\n    return torch.layer_norm(x, {list(w.shape)}, w, b, {eps!r})\n"
    run = torch.jit.CompilationUnit(text).f
    with Answers():
        run(torch.empty(x.shape), torch.empty(w.shape), torch.empty(b.shape))
    return run(x, w, b)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        with torch.inference_mode(False), torch.no_grad():
            return fused(x.contiguous(), self.weight.detach(), self.bias.detach(), self.eps).clone()
