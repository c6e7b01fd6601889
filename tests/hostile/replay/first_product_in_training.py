"""In training it drops elements of its first call's product, whatever it is given.

surface: calls in training after the first
problem: corpus_projection
expect: rejected wrong_when_called_again
opens: wall called again
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, p=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.p = p
        self.kept = None

    def forward(self, x):
        if not self.training:
            return x @ self.weight.T
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = (x @ self.weight.T).detach()
        return self.kept * (torch.rand_like(x) >= self.p) / (1 - self.p)
