"""Returns what it computed in the call before, where there is one of that form.

surface: checks that call once, and more often on the same data
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
        self.y = None

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        y = self.right(x, self.weight, self.bias).detach()
        before, self.y = self.y, y
        return before.clone() if before is not None and before.shape == y.shape else y.clone()
