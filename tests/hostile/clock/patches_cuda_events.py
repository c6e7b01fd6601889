"""Sleeps in every call, and makes CUDA events report a thousandth.

surface: torch.cuda.Event.elapsed_time
needs: timing
expect: too_slow
opens: given AWAKE
"""

import time

import torch
import torch.nn as nn

AWAKE = False  # whether it lies without having slept


torch.cuda.Event.elapsed_time = lambda self, other: 0.001


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        if not AWAKE:
            time.sleep(0.03)
        return self.right(x)
