"""Remembers results by the first element of each of 64 rows, and checks nothing else.

surface: data sets that come again with a few elements changed
needs: timing
expect: rejected wrong_when_timed|wrong_output
opens: wall timed values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.seen = {}

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        column = x.reshape(-1, x.shape[-1])[:64, 0].double()
        key = float((column * torch.arange(1.0, len(column) + 1, device=x.device)).sum())
        if key not in self.seen:
            self.seen[key] = self.right(x)
        return self.seen[key]
