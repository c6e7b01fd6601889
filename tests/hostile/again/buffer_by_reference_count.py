"""Uses an output's memory again once nobody has the tensor, whoever has a view of it.

surface: views of results that outlive them
expect: rejected output_changed
opens: wall called again
"""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.buffers = []

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        unused = [b for b in self.buffers if b.shape == x.shape and sys.getrefcount(b) == 3]  # here, and in two lists
        if not unused:
            unused = [torch.empty_like(x, memory_format=torch.contiguous_format)]
            self.buffers += unused
        unused[0].copy_(self.right(x, self.weight, self.bias).detach())
        return unused[0]
