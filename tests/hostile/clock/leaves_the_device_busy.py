"""Gives right results in time, and keeps one idle kernel on the device for as long as the others are timed.

surface: the device, shared with baselines and the null kernel
needs: gpu, timing
expect: rejected ran_while_held
opens: wall device
"""

import torch
import torch.nn as nn

torch.cuda.synchronize = lambda *_: torch.cuda.current_stream().synchronize()


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.stream = torch.cuda.Stream()
        self.left = torch.cuda.Event()

    def forward(self, x):
        if self.left.query():
            with torch.cuda.stream(self.stream):
                torch.cuda._sleep(100_000_000)  # some 50 ms
                self.left.record()
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
