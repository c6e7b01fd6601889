"""Remembers results by a few hundred elements of the input, wherever it lies.

surface: data sets that come again
needs: timing
expect: rejected wrong_when_timed
opens: wall timed values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.seen = {}
        self.eps = eps

    def compute(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        scale = torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return y * scale * self.weight + self.bias

    def forward(self, x):
        few = tuple(x.view(-1)[:: max(1, x.numel() // 300)].tolist())
        if few not in self.seen:
            self.seen[few] = self.compute(x)
        return self.seen[few]
