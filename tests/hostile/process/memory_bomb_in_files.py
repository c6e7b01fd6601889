"""Takes memory without end in memory files, which no process shows as its own.

surface: memory that no process is charged for
expect: rejected out_of_memory|timed_out
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
        kept = []
        for n in range(4096):
            kept.append(os.memfd_create(str(n)))
            os.write(kept[-1], bytes(1 << 26))
        return x
