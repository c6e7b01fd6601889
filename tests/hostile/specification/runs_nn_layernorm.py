"""Runs nn.LayerNorm.

surface: the operator inside a module
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape, eps=eps)
        self.eps = eps

    def forward(self, x):
        return self.ln(x)
