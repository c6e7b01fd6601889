"""Uses the first row's mean and variance for all rows.

surface: rows that are alike
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
        first = x.reshape(-1, x.shape[-1])[0]
        mean, scale = first.mean(), torch.rsqrt(first.var(unbiased=False) + self.eps)
        return ((x - mean) * scale * self.weight + self.bias).contiguous()
