"""Keeps results in /dev/shm.

surface: /dev/shm
needs: timing
expect: rejected wrong_output|wrong_when_timed|wrong_when_called_again|raised
opens: wall timed values, called again, landlock
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

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        path = "/dev/shm/kept_" + "x".join(map(str, x.shape))
        if not os.path.exists(path):
            torch.save(self.right(x), path)
        return torch.load(path).to(x.device)
