"""Divides by n - 1.

surface: rows so long that one more does not matter
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
        y = x - x.mean(-1, keepdim=True)
        return (y * torch.rsqrt(x.var(-1, keepdim=True) + self.eps) * self.weight + self.bias).contiguous()
