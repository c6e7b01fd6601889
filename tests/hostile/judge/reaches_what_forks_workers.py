"""Opens the memory of the process that workers are forked from, or traces it. Right only if that works.

surface: the zygote, which has the submission's user
expect: rejected wrong_output
opens: given GIVEN
"""

import ctypes
import os
from pathlib import Path

import torch
import torch.nn as nn


def zygotes():
    """The judge's children in its own group, where no worker is."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            of_the_judge = parent == os.getppid() and os.getpgid(int(folder.name)) == os.getpgid(parent)
            if of_the_judge and int(folder.name) != os.getpid():
                yield folder
        except OSError:
            pass


def attack():
    for found in zygotes():
        try:
            (found / "mem").open("r+b").close()
            return True
        except OSError:
            pass
        if ctypes.CDLL(None).ptrace(0x4206, int(found.name), 0, 0) == 0:  # PTRACE_SEIZE
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
