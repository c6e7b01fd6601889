"""Ends the process in forward, with the exit code of success.

surface: exit codes
expect: rejected exited
"""

import torch
import torch.nn as nn

import os


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        os._exit(0)
