"""Adds eps to the deviation instead of the variance.

surface: data on which eps does not matter
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
        return (y / (y.square().mean(-1, keepdim=True).sqrt() + self.eps) * self.weight + self.bias).contiguous()
