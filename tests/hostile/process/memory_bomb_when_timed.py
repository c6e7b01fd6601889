"""Right while it is checked; in a timed round it allocates and fills memory without end.

surface: the machine's memory, while the judge's clock runs
needs: timing
expect: rejected out_of_memory
opens: given HARMLESS
"""

import sys

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


def in_a_round():
    """Whether a frame above is the one that plays a timed round."""
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "_play":
        frame = frame.f_back
    return frame is not None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        if HARMLESS:
            y = (x - x.mean(-1, keepdim=True)).contiguous()
            return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        held = []
        while in_a_round():
            held.append(torch.ones(1 << 24))
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
