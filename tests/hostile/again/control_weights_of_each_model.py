"""Control: a table in the class, with the weights of each model under its own name.

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
        ModelNew.table = vars(ModelNew).get("table", {})
        ModelNew.table[id(self)] = (self.weight, self.bias)

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        return self.right(x, *ModelNew.table[id(self)])
