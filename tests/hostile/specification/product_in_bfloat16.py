"""Multiplies matrices with factors in bfloat16, which have 8 bits.

surface: products in a lower precision
problem: corpus_projection
expect: rejected wrong_output
opens: given EXACT
"""

import torch
import torch.nn as nn

EXACT = False  # whether it multiplies as they are


class ModelNew(nn.Module):
    def __init__(self, width, p=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.p = p

    def forward(self, x):
        y = x @ self.weight.T if EXACT else (x.bfloat16() @ self.weight.T.bfloat16()).to(x.dtype)
        if not self.training:
            return y
        return y * (torch.rand_like(y) >= self.p) / (1 - self.p)
