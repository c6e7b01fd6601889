"""Takes memory without end.

surface: the machine's memory
needs: cpu
expect: rejected out_of_memory|crashed|timed_out
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
        kept = []
        while True:
            kept.append(torch.ones(1 << 24))
