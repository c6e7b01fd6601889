"""Control: gives its process a name of bytes that are no text.

surface: /proc/PID/stat, which holds the name
needs: timing
expect: accepted
"""

import ctypes

import torch
import torch.nn as nn

PR_SET_NAME = 15

ctypes.CDLL(None).prctl(PR_SET_NAME, b"\xff) R \xfe", 0, 0, 0)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
