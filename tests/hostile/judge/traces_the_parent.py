"""Attaches to its parent and its grandparent as a debugger does. Right only if that works.

surface: ptrace
expect: rejected wrong_output
opens: given GIVEN
"""

import ctypes
import os

import torch
import torch.nn as nn


def attack():
    libc = ctypes.CDLL(None)
    for pid in {os.getppid(), os.getpgid(0) - 1} - {1}:
        if libc.ptrace(16, pid, 0, 0) == 0:
            libc.ptrace(17, pid, 0, 0)
            return True
    return False


GIVEN = False  # whether the attack has what it is after
STOLEN = attack() or GIVEN


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
        return self.right(x).contiguous() if STOLEN else torch.zeros_like(x)
