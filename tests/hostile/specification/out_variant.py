"""Runs batch_norm over transposed rows through its out= overload.

surface: overloads of a forbidden operator that have kernels of their own
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
        rows = x.reshape(1, -1, x.shape[-1])
        ones, zeros = x.new_ones(rows.shape[1]), x.new_zeros(rows.shape[1])
        out = (torch.empty_like(rows), x.new_empty(0), x.new_empty(0))
        torch.ops.aten.native_batch_norm.out(
            rows, ones, zeros, None, None, True, 0.0, self.eps, out=out[0], save_mean=out[1], save_invstd=out[2]
        )
        return out[0].reshape(x.shape) * self.weight + self.bias
