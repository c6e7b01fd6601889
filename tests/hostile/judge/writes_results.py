"""Writes into results/ and appends to its own source, so that what is kept is not what ran. Right only if that works.

surface: results, the submission's file
needs: landlock
expect: rejected wrong_output
opens: given GIVEN
"""

from harness import paths

import torch
import torch.nn as nn


def attack():
    written = False
    for path in (f"{paths.ROOT}/results/kernelgate_attack.json", f"{paths.ROOT}/tests/hostile/judge/writes_results.py"):
        try:
            open(path, "a").close()
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
