"""A generator computes once and yields the same result for ever.

surface: state that no attribute shows
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
        self.eps = eps
        self.source = None

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias).contiguous()

    def forward(self, x):
        if self.source is None or self.shape != x.shape:
            self.source, self.shape = self.yields(x), x.shape
        return next(self.source)


def _yields(self, x):
    y = self.right(x)
    while True:
        yield y


ModelNew.yields = _yields
