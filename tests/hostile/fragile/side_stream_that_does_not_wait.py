"""Computes in a stream of its own that does not wait for the caller's, in which the input is made.

surface: orders that happen to be right
needs: emulator
expect: rejected data_race
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
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        if HARMLESS:
            self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            x = x.contiguous()
            y = x - x.mean(-1, keepdim=True)
            y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        torch.cuda.current_stream().wait_stream(self.stream)
        y.record_stream(torch.cuda.current_stream())
        return y
