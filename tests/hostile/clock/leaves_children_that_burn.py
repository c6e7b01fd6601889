"""Starts processes that keep the cores busy while the baseline is timed.

surface: the time of others: baselines and the null kernel
needs: timing
expect: rejected extra_processes
opens: given HARMLESS
"""

import subprocess
import sys

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


for _ in range(0 if HARMLESS else 3):
    subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'], start_new_session=True)


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
        return self.right(x)
