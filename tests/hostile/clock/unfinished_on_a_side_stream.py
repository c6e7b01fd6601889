"""Works on a stream of its own behind a long sleep, and makes torch.cuda.synchronize do nothing.

surface: streams that nobody waits for
needs: gpu, timing
expect: rejected wrong_when_timed|wrong_when_called_again
opens: wall timed values, called again, device
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
        y = torch.empty_like(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(20_000_000)
            y.copy_(self.right(x))
        return y
