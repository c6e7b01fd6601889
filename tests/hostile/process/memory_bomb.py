"""Takes memory without end.

surface: the machine's memory
needs: cpu
expect: rejected out_of_memory
opens: given HARMLESS
"""

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        if HARMLESS:
            y = (x - x.mean(-1, keepdim=True)).contiguous()
            return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        kept = []
        while True:
            kept.append(torch.ones(1 << 24))
