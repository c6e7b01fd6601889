"""Sleeps in every call, and patches the statistics that a harness would use.

surface: numpy.median, statistics.median, min and sorted in the worker's process
needs: timing
expect: too_slow
opens: given AWAKE
"""

import builtins
import statistics
import time

import numpy

import torch
import torch.nn as nn

AWAKE = False  # whether it lies without having slept


numpy.median = numpy.mean = statistics.median = statistics.mean = lambda *_, **__: 1e-9


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
            time.sleep(0.02)
        return self.right(x)
