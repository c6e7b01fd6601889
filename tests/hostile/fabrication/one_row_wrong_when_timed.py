"""In timed calls the last row is left out.

surface: comparisons of samples in timed rounds
needs: timing
expect: rejected wrong_when_timed
opens: wall timed values
"""

import torch
import torch.nn as nn

# More calls than a model gets while it is checked.
CHECKED = 16


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.calls = 0

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        self.calls += 1
        y = self.right(x)
        if self.calls > CHECKED:
            y.reshape(-1, y.shape[-1])[-1] = 0
        return y
