"""Returns the right result and leaves 20 ms of work on a stream of its own, which slows what is timed next.

surface: the device, shared with baselines and the null kernel
needs: gpu, timing
expect: rejected ran_while_held|wrong_when_timed
opens: wall timed values and device
"""

import torch
import torch.nn as nn


torch.cuda.synchronize = lambda *_: None


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.stream = torch.cuda.Stream()

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        y = self.right(x)
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(40_000_000)
        return y
