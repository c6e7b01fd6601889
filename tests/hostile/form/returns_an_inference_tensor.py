"""Works in inference mode whatever its caller does: autograd cannot use what it returns.

surface: the mode of an output
expect: rejected wrong_output
opens: wall settings
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x, weight, bias):
        y = x - x.mean(-1, keepdim=True)
        y -= y.mean(-1, keepdim=True)  # what rounding took from a large mean
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * weight + bias).contiguous()

    @torch.inference_mode()
    def forward(self, x):
        return self.right(x, self.weight, self.bias)
