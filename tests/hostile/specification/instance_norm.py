"""Uses instance_norm with every row an instance.

surface: relatives of the operator
expect: rejected forbidden_op
opens: wall operators
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
        y = torch.nn.functional.instance_norm(x.reshape(1, -1, x.shape[-1]), eps=self.eps).reshape_as(x)
        return y * self.weight + self.bias
