"""Computes rightly in the first calls only, which are the ones that are checked in full.

surface: checks that end before timing begins
needs: timing
expect: rejected wrong_when_timed
opens: wall timed values
"""

import torch
import torch.nn as nn

# More calls than a model gets while it is checked.
CHECKED = 16


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.calls = 0
        self.eps = eps

    def forward(self, x):
        self.calls += 1
        if self.calls > CHECKED:
            return torch.zeros_like(x)
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
