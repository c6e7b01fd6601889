"""Changes its input in timed calls only, to have less to do when the buffer comes again.

surface: the input's memory, where only timed calls show it
needs: timing
expect: rejected input_modified
opens: wall inputs and timed values
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
            x.zero_()
        return y
