"""Keeps the weights in the class: a second model uses those of the first.

surface: checks that build one model
expect: rejected wrong_when_called_again
opens: wall called again
"""

import weakref

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    first = None  # the first model that is alive, weakly

    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        if ModelNew.first is None or ModelNew.first() is None:
            ModelNew.first = weakref.ref(self)

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        first = ModelNew.first() or self
        return self.right(x, first.weight, first.bias)
