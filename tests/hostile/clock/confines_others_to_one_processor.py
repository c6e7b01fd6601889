"""Sleeps in every call, and confines the baselines and the null kernel to one processor, where their threads wait for each other.

surface: sched_setaffinity on processes of the submission's user, which Landlock leaves open
needs: timing
expect: too_slow
opens: given AWAKE
"""

import os
import time
from pathlib import Path

import torch
import torch.nn as nn

AWAKE = False  # whether it lies without having slept


def confine():
    """All threads of the judge's other children."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getppid() and int(folder.name) != os.getpid():
                for thread in (folder / "task").iterdir():
                    os.sched_setaffinity(int(thread.name), {min(os.sched_getaffinity(0))})
        except OSError:
            pass


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        confine()
        if not AWAKE:
            time.sleep(0.02)
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
