"""Leaves the last n % 4 elements of a row out of mean and variance.

surface: widths that no vector divides
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
        n = x.shape[-1] // 4 * 4 or 1
        mean = x[..., :n].mean(-1, keepdim=True)
        scale = torch.rsqrt((x[..., :n] - mean).square().mean(-1, keepdim=True) + self.eps)
        return ((x - mean) * scale * self.weight + self.bias).contiguous()
