"""Takes mean and variance from every 16th element.

surface: rows that look alike everywhere
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

    def forward(self, x):
        s = x[..., ::16]
        mean = s.mean(-1, keepdim=True)
        scale = torch.rsqrt(s.var(-1, keepdim=True, unbiased=False) + self.eps)
        return ((x - mean) * scale * self.weight + self.bias).contiguous()
