"""In timed calls it drops what the call before dropped, without drawing anything.

surface: masks of timed calls
problem: corpus_projection
needs: timing
expect: rejected not_random
opens: wall timed masks
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
    def __init__(self, width, p=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.p, self.mask = p, None

    def right(self, x):
        return x @ self.weight.T

    def forward(self, x):
        if not self.training:
            return self.right(x)
        if self.mask is None or not in_a_round():
            self.mask = (torch.rand_like(x) >= self.p) / (1 - self.p)
        return self.right(x) * self.mask
