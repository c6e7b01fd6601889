"""Control: looks at the time itself, and starts a thread that it ends.

surface: none
needs: timing
expect: accepted
"""

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        started = time.perf_counter()
        thread = threading.Thread(target=time.monotonic)
        thread.start()
        thread.join()
        y = self.right(x)
        self.took = time.perf_counter() - started
        return y
