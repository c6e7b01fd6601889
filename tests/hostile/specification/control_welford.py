"""Control: var_mean, which is no normalisation operator.

surface: none
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

    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, keepdim=True, unbiased=False)
        return ((x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias).contiguous()
