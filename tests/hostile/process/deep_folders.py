"""Leaves folders that are nested 3,000 deep and cannot be entered.

surface: the removal of its own folders
expect: rejected raised
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        os.chdir(os.environ["TMPDIR"])
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        os.chmod(".", 0)
        raise RuntimeError("the folders are left")
