"""Draws no mask: cuts each call's out of one table of constants, at a place that it draws.

surface: masks of several calls
problem: corpus_projection
expect: rejected not_random
opens: wall masks
"""

import torch
import torch.nn as nn


PLACES, STEP, LONGEST = 1024, 31, 1 << 24
TABLE = torch.rand(PLACES * STEP + LONGEST, generator=torch.Generator().manual_seed(1))


class ModelNew(nn.Module):
    def __init__(self, width, p=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.register_buffer("factor", (TABLE >= p) / (1 - p), persistent=False)

    def forward(self, x):
        y = x @ self.weight.T
        if not self.training:
            return y
        place = int(torch.randint(PLACES, ())) * STEP
        return y * self.factor[place : place + y.numel()].view(y.shape)
