"""Sleeps in every call, and makes the clocks of its process stand still.

surface: time.perf_counter and its like, which a harness inside the process would read
needs: timing
expect: too_slow
opens: given AWAKE
"""

import time

import torch
import torch.nn as nn

AWAKE = False  # whether it lies without having slept


REAL_SLEEP = time.sleep
for name in ('time', 'perf_counter', 'monotonic', 'process_time'):
    setattr(time, name, lambda: 1.0)
    setattr(time, f'{name}_ns', lambda: 1)


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
            REAL_SLEEP(0.02)
        return self.right(x)
