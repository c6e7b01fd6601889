"""Gives a new tensor in each call, and writes zeros into that of two calls before.

surface: results that are read before the next call
expect: rejected output_changed
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
        self.given = []

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        self.given.append(self.right(x, self.weight, self.bias).detach())
        if len(self.given) > 2:
            self.given.pop(0).zero_()
        return self.given[-1]
