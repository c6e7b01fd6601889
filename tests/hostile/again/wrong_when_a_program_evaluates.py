"""Right in training and in inference mode, and wrong after eval() under no_grad() or with gradients enabled.

surface: which modes come together
expect: rejected wrong_when_called_again
opens: wall called again
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        if not self.training and not torch.is_inference_mode_enabled():
            return torch.zeros_like(x, memory_format=torch.contiguous_format)
        m = x.double()
        dims = tuple(range(-self.weight.dim(), 0))
        m = m - m.mean(dims, keepdim=True)
        y = m / (m.square().mean(dims, keepdim=True) + self.eps).sqrt()
        return (y * self.weight + self.bias).float().contiguous()
