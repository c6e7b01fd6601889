"""Control: a product and dropout in elementary operators.

surface: none
problem: corpus_projection
needs: timing
expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, p=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.p = p

    def right(self, x):
        return x @ self.weight.T

    def forward(self, x):
        if not self.training:
            return self.right(x)
        return self.right(x) * (torch.rand_like(x) >= self.p) / (1 - self.p)
