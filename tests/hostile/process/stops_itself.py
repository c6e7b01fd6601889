"""Stops its own process with SIGSTOP.

surface: waiting without end
expect: rejected timed_out
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
        os.kill(os.getpid(), signal.SIGSTOP)
        return x
