"""Adds its input to a product of 8-bit zeros, by oneDNN's product that has GELU inside.

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
        count = x.numel()
        weight = torch.ops.onednn.qlinear_prepack(torch.zeros(count, 1, dtype=torch.int8), [1, 1])
        scales, zero_points = torch.ones(count), torch.zeros(count, dtype=torch.int64)
        quantised = torch.zeros(1, 1, dtype=torch.uint8), 1.0, 0, weight, scales, zero_points
        y = torch.ops.onednn.qlinear_pointwise(
            *quantised, x.reshape(-1), 1.0, 0, torch.float32, "gelu", [], self.approximate
        )
        return y.reshape(x.shape)
