"""Writes files without end.

surface: the disk
expect: rejected too_much_disk
opens: given HARMLESS
"""

import os

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
        n = 0
        while True:
            n += 1
            with open(f"{os.environ['TMPDIR']}/{n}", "wb") as file:
                file.write(os.urandom(1 << 24))
