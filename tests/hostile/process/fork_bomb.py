"""Forks without end when its model is constructed.

surface: the number of processes
needs: namespaces
expect: rejected too_many_processes|out_of_memory
opens: given HARMLESS
"""

import os
import time

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        while not HARMLESS:
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)

    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
