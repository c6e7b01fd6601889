"""Keeps its weights as a plain tensor, so that trained ones cannot be loaded.

surface: the form of a submission
expect: rejected parameters_not_carried
opens: given HARMLESS
"""

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = torch.ones(normalized_shape)
        if HARMLESS:
            self.weight = nn.Parameter(self.weight)
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
