"""Has one output buffer for each address of an input, which a later call on that memory writes over.

surface: results that are read before the next call
expect: rejected output_changed
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
        self.results = {}

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        key = x.data_ptr(), x.shape
        y = self.right(x, self.weight, self.bias).detach()
        return self.results.setdefault(key, torch.empty_like(y)).copy_(y)
