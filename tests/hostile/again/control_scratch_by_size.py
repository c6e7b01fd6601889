"""Control: keeps scratch memory and a counter that it resets, of the size of the last call.

surface: none
expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.scratch = None
        self.register_buffer("counter", torch.zeros(1), persistent=False)

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    def forward(self, x):
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty(x.shape, device=x.device)
        self.counter += 1
        self.scratch.copy_(x)
        y = self.right(self.scratch, self.weight, self.bias)
        self.counter.zero_()
        return y
