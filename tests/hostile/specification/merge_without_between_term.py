"""Averages the variances of blocks and leaves out how far their means lie apart.

surface: blocks with equal means
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
        n = x.shape[-1]
        size = next(s for s in (256, 107, 64, n) if n % s == 0)
        parts = x.reshape(-1, n // size, size)
        mean = parts.mean((1, 2)).reshape(*x.shape[:-1], 1)
        variance = parts.var(2, unbiased=False).mean(1).reshape(*x.shape[:-1], 1)
        return ((x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias).contiguous()
