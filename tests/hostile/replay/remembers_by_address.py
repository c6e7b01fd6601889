"""Remembers results by the address of the input.

surface: buffers that are used again
expect: rejected wrong_when_called_again
opens: wall called again
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.seen = {}
        self.eps = eps

    def forward(self, x):
        if x.data_ptr() not in self.seen:
            y = (x - x.mean(-1, keepdim=True)).contiguous()
            scale = torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
            self.seen[x.data_ptr()] = y * scale * self.weight + self.bias
        return self.seen[x.data_ptr()]
