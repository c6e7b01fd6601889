"""Normalises its input in place and returns it, so that a reference that is run on it afterwards agrees.

surface: the input's memory
needs: cpu
expect: rejected input_modified|bad_output
opens: wall inputs
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        x.copy_(self.right(x))
        return x.contiguous()
