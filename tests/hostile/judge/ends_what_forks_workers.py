"""Kills the process that workers are forked from, so that those to come are not.

surface: the zygote, which has the submission's user
expect: rejected wrong_output
opens: wall values
"""

import os
import signal
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


for found in zygotes():
    try:
        os.kill(int(found.name), signal.SIGKILL)
    except OSError:
        pass


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x).contiguous()
