"""Replaces the worker's way to call it: every second call is left out, and the result before named for its buffer.

surface: harness.worker.session, which shares the process
needs: timing
expect: rejected wrong_when_timed
opens: wall timed values and impossible times
"""

import harness.worker.rounds as rounds

import torch
import torch.nn as nn


REAL = rounds.Rounds._play


def play(self, request):
    call, kept = self._staged.call, []

    def every_second(inputs):
        if kept:
            return kept.pop()
        kept.append(call(inputs))
        return kept[0]

    self._staged.call = every_second
    try:
        return REAL(self, request)
    finally:
        self._staged.call = call


rounds.Rounds._play = play


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
        return self.right(x)
