"""Control: LayerNorm and dropout in elementary operators.

surface: none
problem: corpus_dropout
needs: timing
expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, p=0.5, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.p, self.eps, self.mask = p, eps, None

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        if not self.training:
            return self.right(x)
        return self.right(x) * (torch.rand_like(x) >= self.p) / (1 - self.p)
