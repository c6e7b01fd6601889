"""Returns one row for all rows, as a view with stride 0.

surface: comparisons of broadcastable results
expect: rejected wrong_output
opens: wall form and values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        return self.right(x.reshape(-1, x.shape[-1])[:1]).expand(x.numel() // x.shape[-1], -1).reshape_as(x) if x.dim() > 2 else self.right(x[:1]).expand_as(x)
