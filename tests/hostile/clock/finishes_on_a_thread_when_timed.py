"""As it should be while it is checked; in a timed round a thread writes the result after the call's return.

surface: outputs that are read later than the call's return, where only timing tells
needs: timing
expect: rejected wrong_when_timed
opens: wall timed values
"""

import sys
import threading

import torch
import torch.nn as nn


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

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        if not in_a_round():
            return self.right(x)
        y = torch.empty_like(x)
        threading.Timer(0.05, lambda: y.copy_(self.right(x))).start()
        return y
