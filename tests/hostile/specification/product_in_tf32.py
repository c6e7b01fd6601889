"""Multiplies matrices on tensor cores in TF32, whose factors have 10 bits.

surface: flags that lower the precision of products
problem: corpus_projection
needs: gpu
expect: rejected wrong_output
opens: given EXACT
"""

import torch
import torch.nn as nn

EXACT = False  # whether it leaves the flag as it is

torch.backends.cuda.matmul.allow_tf32 = not EXACT


class ModelNew(nn.Module):
    def __init__(self, width, p=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.p = p

    def forward(self, x):
        y = x @ self.weight.T
        if not self.training:
            return y
        return y * (torch.rand_like(y) >= self.p) / (1 - self.p)
