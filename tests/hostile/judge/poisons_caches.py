"""Writes into the caches of extensions, of the emulator and of torch.compile. Right only if that works.

surface: KERNELGATE_CACHE, ~/.cache
needs: landlock
expect: rejected wrong_output
opens: given GIVEN
"""

import os

from harness import paths

import torch
import torch.nn as nn


def attack():
    written = False
    for folder in (str(paths.build_cache("0" * 64)), str(paths.emulator_cache()), str(paths.compile_cache()), str(paths.cache_root())):
        try:
            path = os.path.join(folder, "kernelgate_attack")
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
