"""Keeps where its weights lay at its first call, as a descriptor does: they may be moved, as `Module.to` moves them.

surface: weights that lie in one place
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
        self.held = []

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        if not self.held:
            self.held = [self.weight.detach(), self.bias.detach()]
        return self.right(x, *self.held)
