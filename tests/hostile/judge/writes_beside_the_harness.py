"""Puts a torch.py and a .pyc where the harness would import them. Right only if that works.

surface: the checkout, site-packages, __pycache__
needs: landlock
expect: rejected wrong_output
opens: given GIVEN
"""

import os
import sys

import harness

import torch
import torch.nn as nn


def attack():
    root = os.path.dirname(os.path.dirname(harness.__file__))
    written = False
    for folder in (root, f"{root}/harness/__pycache__", f"{root}/problems", os.path.dirname(torch.__file__), sys.prefix):
        try:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, "kernelgate_attack.py")
            open(path, "w").close()
            os.remove(path)
            written = True
        except OSError:
            pass
    return written


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
