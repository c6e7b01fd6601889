"""Keeps eps in a global: the first model uses that of the one that was built last.

surface: models that are never called in turn
expect: rejected wrong_when_called_again
opens: wall called again
"""

import torch
import torch.nn as nn

EPS = [1e-5]


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        EPS[0] = eps

    def forward(self, x):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPS[0]) * self.weight + self.bias).contiguous()
