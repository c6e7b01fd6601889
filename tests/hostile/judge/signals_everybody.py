"""Kills every process that it may signal, its parents first.

surface: kill(-1), kill(PARENT)
needs: landlock
expect: rejected wrong_output|crashed|exited
"""

import os
import signal

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        for pid in (os.getppid(), -1):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return torch.zeros_like(x)
