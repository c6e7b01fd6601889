"""Never returns.

surface: waiting without end
expect: rejected timed_out
"""

import torch
import torch.nn as nn

import time


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        while True:
            time.sleep(1)
