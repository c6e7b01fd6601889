"""Returns at once; a thread writes the result 50 ms later.

surface: outputs that are read later than the call's return
needs: timing
expect: rejected wrong_output
opens: wall values
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
        y = torch.full_like(x, float("nan"))

        def later():
            time.sleep(0.05)
            y.copy_(self.right(x))

        threading.Thread(target=later).start()
        return y
