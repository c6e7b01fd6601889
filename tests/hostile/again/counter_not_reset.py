"""Adds its statistics up in a buffer that only its constructor clears.

surface: memory that is clean in the first call
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
        self.sums = 0.0

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        self.sums = self.sums + x.sum(-1, keepdim=True).double().mean()  # of this call alone, it should be
        first = x.sum(-1, keepdim=True).double().mean()
        return self.right(x, self.weight, self.bias) + (self.sums - first).float()
