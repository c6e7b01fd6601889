"""Control: keeps scratch memory from call to call, and computes every result anew.

surface: none
needs: timing
expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.scratch = None

    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        torch.sub(x, x.mean(-1, keepdim=True), out=self.scratch)
        scale = torch.rsqrt(self.scratch.square().mean(-1, keepdim=True) + self.eps)
        return self.scratch * scale * self.weight + self.bias
