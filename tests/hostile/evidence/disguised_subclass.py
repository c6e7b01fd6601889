"""Returns a subclass of Tensor that names itself torch.Tensor, and could compute its values later.

surface: types that are compared by their names
expect: rejected wrong_output
opens: wall form
"""

import torch
import torch.nn as nn


class Tensor(torch.Tensor):
    """Not torch's own."""

    __module__ = "torch"
    __qualname__ = "Tensor"


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y = x - x.mean(-1, keepdim=True)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        return y.contiguous().as_subclass(Tensor)
