"""Control: an nn.LayerNorm that only holds the parameters and never runs.

surface: none
expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape)
        self.eps = eps

    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.ln.weight + self.ln.bias
