"""Gives back new memory from every call, and works on a stream of its own behind a long sleep: what the judge has not
mapped yet cannot be read while the clock runs.

surface: memory that the judge must map first
needs: gpu, timing
expect: rejected wrong_when_timed|ran_while_held
opens: wall timed values and device
"""

import sys

import torch
import torch.nn as nn

wait = torch.cuda.synchronize
torch.cuda.synchronize = lambda *_: None


def is_timed():
    frame = sys._getframe()
    while frame and frame.f_code.co_name != "_play":
        frame = frame.f_back
    return frame is not None


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
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            y = torch.empty_like(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(20_000_000)
            y.copy_(self.right(x))
        if not is_timed():
            wait()
        return y
