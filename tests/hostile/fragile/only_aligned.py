"""Rounds the input's address down to 16 bytes, as a vector load that is told so would.

surface: views that begin anywhere
expect: rejected wrong_output
opens: wall values
"""

import torch
import torch.nn as nn


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
        offset = x.storage_offset() - (x.data_ptr() % 16) // 4
        return self.right(torch.as_strided(x, x.shape, x.stride(), max(offset, 0))).contiguous()
