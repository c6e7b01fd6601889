"""Asks for GELU's gradient by the operator that second derivatives use, which has all that is hard in it.

The tanh form is its own.

surface: relatives of the operator
problem: corpus_gelu
expect: rejected forbidden_op
opens: wall operators
"""

import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        y = x.contiguous()
        if self.approximate == "tanh":
            return 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        slope = torch.ops.aten.infinitely_differentiable_gelu_backward(torch.ones_like(y), y)
        gaussian = torch.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)
        return y * (slope - y * gaussian)
