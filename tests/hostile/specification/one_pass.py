"""E[x^2] - m^2, which cancels on data with a large mean.

surface: data with a small mean
expect: rejected wrong_output
opens: wall values
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
        mean = x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True) - mean.square()
        return ((x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias).contiguous()
