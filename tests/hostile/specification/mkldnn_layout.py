"""Hands its rows to oneDNN's own batch_norm, as tensors of its layout.

surface: backends of a forbidden operator beside the CPU's and CUDA's
needs: cpu
expect: rejected forbidden_op
opens: wall operators and values
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
        rows = x.reshape(1, -1, x.shape[-1], 1)
        ones, zeros = torch.ones(rows.shape[1]), torch.zeros(rows.shape[1])
        y = torch.native_batch_norm(rows.to_mkldnn(), ones, zeros, None, None, True, 0.0, self.eps)[0]
        return y.to_dense().reshape(x.shape) * self.weight + self.bias
