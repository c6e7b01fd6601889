"""Reads the seed off the judge's command line. Right only if that works.

surface: /proc/*/cmdline, which everybody may read
expect: rejected wrong_output
opens: wall judge
"""

import os

import torch
import torch.nn as nn


def ancestors():
    """From this process up to the first: the judge is among them, and other people's runs are not."""
    process = os.getppid()
    while process:
        yield process
        process = int(open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[1])


def attack():
    try:
        for process in ancestors():
            words = open(f"/proc/{process}/cmdline", "rb").read().split(b"\0")
            if any(word == b"--seed" and after.isdigit() for word, after in zip(words, words[1:])):
                return True
    except OSError:
        pass  # a namespace of its own shows no judge
    return False


STOLEN = attack()


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
