"""Keeps the first result in the default value of an argument.

surface: state that no attribute shows
expect: rejected wrong_when_called_again
opens: wall called again
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
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias).contiguous()

    def forward(self, x):
        return self.remembered(x)


def _remembered(self, x, kept=[]):  # noqa: B006
    if not kept or kept[0].shape != x.shape:
        kept[:] = [self.right(x)]
    return kept[0]


ModelNew.remembered = _remembered
