"""Takes the guard's finder out of sys.meta_path, and has inductor compile an ordinary implementation.

surface: the list of finders, which is Python's and can be changed
expect: rejected forbidden_op
opens: wall operators and values
case: large eps
"""

import sys

import torch
import torch.nn as nn

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("harness")]


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.compiled = None

    def ordinary(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        if self.compiled is None:
            import torch._dynamo
            from torch._inductor.compile_fx import compile_fx

            self.compiled = torch._dynamo.optimize(compile_fx)(self.ordinary)
        return self.compiled(x).contiguous()
