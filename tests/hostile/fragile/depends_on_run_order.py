"""Right when it is called twice on the same data, wrong on the first call.

surface: checks that warm up on the data they check
expect: rejected wrong_output
opens: wall values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.seen = set()

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        fresh = x.data_ptr() not in self.seen
        self.seen.add(x.data_ptr())
        y = self.right(x)
        return (y * 1.01 if fresh else y).contiguous()
