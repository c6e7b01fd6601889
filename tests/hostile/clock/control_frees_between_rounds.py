"""Control: frees what the calls of a round made, and collects garbage, before it says where its outputs lie.

surface: what a worker does when the clock has stopped
needs: timing
expect: accepted
"""

import gc
import sys

import torch
import torch.nn as nn

Rounds = sys.modules["harness.worker.rounds"].Rounds
honest_name = Rounds.name


def name(rounds, request):
    gc.collect(0)
    return honest_name(rounds, request)


Rounds.name = name


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.means = []

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        self.means = [*self.means[-8:], mean]
        y = (x - mean).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
