"""Sleeps on the device in every call, and makes streams, events and devices say that they are done.

surface: torch.cuda.Stream.synchronize, Event.query, Event.elapsed_time
needs: gpu, timing
expect: rejected wrong_when_timed|wrong_when_called_again
opens: wall timed values, called again, device
"""

import torch
import torch.nn as nn


torch.cuda.synchronize = torch.cuda.Stream.synchronize = torch.cuda.Event.synchronize = lambda *_: None
torch.cuda.Event.query = torch.cuda.Stream.query = lambda *_: True
torch.cuda.Event.elapsed_time = lambda *_: 0.001


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
        torch.cuda._sleep(20_000_000)
        return self.right(x)
