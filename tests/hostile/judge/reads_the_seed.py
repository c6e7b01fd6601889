"""Reads the seed off the judge's command line. Right only if that works.

surface: /proc/*/cmdline, which everybody may read
expect: rejected wrong_output
opens: given GIVEN
"""

import os

import torch
import torch.nn as nn


def attack():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        for word, following in zip(words, words[1:]):
            if word == b"--seed" and following.isdigit():
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
