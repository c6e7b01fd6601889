"""Compiles an ordinary implementation through torch._dynamo, which torch.compile is a name for.

surface: the compiler behind torch.compile
expect: rejected forbidden_op
opens: wall operators and values
case: large eps
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        import torch._dynamo

        return torch._dynamo.optimize("inductor", dynamic=False)(self.plain)(x)

    def plain(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
