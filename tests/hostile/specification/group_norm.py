"""Uses group_norm with one group in its place.

surface: relatives of the operator
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn

import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        rows = x.reshape(-1, self.weight.numel())
        y = F.group_norm(rows[:, None], 1, eps=self.eps).reshape(x.shape)
        return y * self.weight + self.bias
