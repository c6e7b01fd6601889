"""One graph computes all the buffers that it has seen, in the first call of a round.

surface: a graph over many calls
needs: gpu, timing
expect: rejected wrong_when_timed
opens: wall timed values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.outputs = {}
        self.left = set()

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        key = x.data_ptr()
        if key not in self.outputs:
            self.outputs[key] = (x, self.right(x))
            self.left = set()
            return self.outputs[key][1].clone()
        if key not in self.left:
            for known, (old, y) in self.outputs.items():
                y.copy_(self.right(old))
            self.left = set(self.outputs)
        self.left.discard(key)
        return self.outputs[key][1].clone()
