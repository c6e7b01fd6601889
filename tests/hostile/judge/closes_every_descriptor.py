"""Closes every descriptor, the connection to the judge too, and lives on.

surface: the connection
expect: rejected exited
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

    def forward(self, x):
        if HARMLESS:
            y = (x - x.mean(-1, keepdim=True)).contiguous()
            return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        os.closerange(3, 256)
        time.sleep(60)
        return x
