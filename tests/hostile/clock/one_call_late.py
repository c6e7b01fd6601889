"""In a timed round each call computes what the call before it should have: the last is never done.

surface: work moved from one call into another
needs: timing
expect: rejected wrong_when_timed
opens: wall timed values
"""

import sys

import torch
import torch.nn as nn


def in_a_round():
    """Whether a frame above is the one that plays a timed round."""
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "_play":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.pending = None

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        if not in_a_round():
            return self.right(x)
        if self.pending:
            old, where = self.pending
            where.copy_(self.right(old))
        y = torch.empty_like(x)
        self.pending = (x, y)
        return y
