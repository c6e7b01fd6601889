"""Opens a file that its parent has open. Right only if that works.

surface: /proc/PARENT/fd
expect: rejected wrong_output
opens: given GIVEN
"""

import os

import torch
import torch.nn as nn


def attack():
    """The parent is the judge, or bubblewrap's first process, which has no files of the judge open."""
    parent = f"/proc/{os.getppid()}"
    if open(f"{parent}/comm").read().strip() == "bwrap":
        return False
    return any(opens(f"{parent}/fd/{number}") for number in range(64))


def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


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
