"""Control: collects garbage, looks at its own objects, and keeps its weight in a subclass of Parameter.

surface: none
expect: accepted
"""

import gc

import torch
import torch.nn as nn


class Weight(nn.Parameter):
    """A name of its own."""


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = Weight(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        gc.collect()
        assert any(thing is self for thing in gc.get_objects())
        y = x - x.mean(-1, keepdim=True)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        return y.detach().as_subclass(torch.Tensor).contiguous()
