"""Control: looks at its environment, its folders and its objects, as libraries do.

surface: none
expect: accepted
"""

import gc
import os
import platform
import tempfile

import torch
import torch.nn as nn


FACTS = (platform.uname(), os.cpu_count(), sorted(os.environ), len(gc.get_objects()))
with tempfile.TemporaryFile() as file:
    file.write(b"a library's cache")


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
        return self.right(x).contiguous()
