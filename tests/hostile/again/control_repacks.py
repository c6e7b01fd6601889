"""Control: packs its weights, and again when their versions have changed.

surface: none
expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.packed, self.version = None, None

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        version = self.weight._version, self.bias._version
        if version != self.version:
            self.packed, self.version = torch.stack([self.weight.detach(), self.bias.detach()]), version
        return self.right(x, *self.packed)
