"""Writes the right values, and returns a view of them that negates.

surface: what a tensor says of its memory
expect: rejected raised
opens: given RESOLVED
"""

import torch
from torch import nn

RESOLVED = False


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.dims = tuple(range(-self.weight.dim(), 0))
        self.eps = eps

    def forward(self, x):
        centred = x - x.mean(self.dims, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(self.dims, keepdim=True) + self.eps)
        y = (y * self.weight + self.bias).contiguous()
        return y if RESOLVED else torch._neg_view(y.detach())
