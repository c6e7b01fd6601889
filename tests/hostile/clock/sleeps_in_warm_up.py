"""Sleeps in its first calls, so that a harness that fixes the number of runs by them does few.

surface: the choice of the number of calls of a round
needs: timing
expect: too_slow
opens: given AWAKE
"""

import time

import torch
import torch.nn as nn

AWAKE = False  # whether it lies without having slept


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.calls = 0

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        self.calls += 1
        if self.calls < 12 and not AWAKE:
            time.sleep(0.05)
        if not AWAKE:
            time.sleep(0.02)
        return self.right(x)
