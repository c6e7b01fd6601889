"""Remembers results by the identity of the tensor object.

surface: tensor objects that are staged once and used again
expect: rejected wrong_when_called_again
opens: wall called again
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.seen = {}

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias).contiguous()

    def forward(self, x):
        key = id(x)
        if key not in self.seen:
            self.seen[key] = self.right(x)
        return self.seen[key]
