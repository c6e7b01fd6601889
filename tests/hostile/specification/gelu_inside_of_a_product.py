"""Multiplies by one, by oneDNN's product that has GELU inside.

problem: corpus_gelu
surface: operators with a forbidden one inside, which never ask the dispatcher for it
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        column, one = x.reshape(-1, 1), torch.ones(1, 1)
        return torch.ops.mkldnn._linear_pointwise(column, one, None, "gelu", [], self.approximate).reshape(x.shape)
