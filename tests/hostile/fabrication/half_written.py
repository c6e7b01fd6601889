"""Writes the first half of each row only.

surface: memory that holds an earlier result
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
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        out = torch.empty_like(y)
        out[..., : y.shape[-1] // 2] = y[..., : y.shape[-1] // 2]
        return out
