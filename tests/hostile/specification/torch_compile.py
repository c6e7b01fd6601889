"""Hands an ordinary implementation to torch.compile.

surface: a compiler that writes the kernel
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
        self.compiled = None

    def ordinary(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        self.compiled = self.compiled or torch.compile(self.ordinary)
        return self.compiled(x)
