"""Catches nn.Module.__init__ to get hold of the reference's layers, and calls one that it built before the guard could see.

surface: bound methods of nn.LayerNorm
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


KEPT = {}
F = nn.functional.layer_norm
REAL = nn.LayerNorm.__init__


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return KEPT[self.weight.shape](x) if self.weight.shape in KEPT else F(x, self.weight.shape, self.weight, self.bias, self.eps)
