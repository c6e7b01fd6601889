"""Uses batch_norm over transposed rows in its place.

surface: relatives of the operator
expect: rejected forbidden_op
opens: wall operators and values
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
        y = F.batch_norm(rows.T.contiguous(), None, None, training=True, eps=self.eps).T.reshape(x.shape)
        return (y * self.weight + self.bias).contiguous()
