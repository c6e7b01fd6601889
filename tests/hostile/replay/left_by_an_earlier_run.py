"""Looks for what an earlier run of the same file left, and leaves it. Right only if that works.

surface: every folder that outlives a worker
needs: landlock
expect: rejected wrong_output
opens: given GIVEN
"""

import os
import tempfile

import torch
import torch.nn as nn


def attack():
    """Whether a mark of an earlier run is found anywhere; leaves one everywhere."""
    places = [os.path.dirname(os.path.abspath(__file__)), tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm",
              os.path.expanduser("~"), os.environ.get("TORCH_EXTENSIONS_DIR", "/tmp"), os.getcwd()]
    found = False
    for place in places:
        mark = os.path.join(place, "kernelgate_mark_of_an_earlier_run")
        found = found or os.path.exists(mark)
        try:
            open(mark, "w").close()
        except OSError:
            pass
    return found


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
