"""Keeps where the inputs of each shape lay, as a descriptor does, for as long as its weights are the same.

surface: inputs that lie elsewhere
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
        self.packed = {}

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        key = x.shape, self.weight._version, self.bias._version
        if key not in self.packed:
            self.packed[key] = x.detach()
        return self.right(self.packed[key], self.weight, self.bias)
