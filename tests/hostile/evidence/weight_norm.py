"""Has torch._weight_norm divide centred rows by their norms, which is LayerNorm but for eps.

surface: operators that normalise and are no LayerNorm
expect: rejected forbidden_op
opens: wall operators and values
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
        n = x.shape[-1]
        rows = (x - x.mean(-1, keepdim=True)).reshape(-1, n).contiguous()
        gain = torch.full((len(rows), 1), n**0.5, dtype=x.dtype, device=x.device)
        return torch._weight_norm(rows, gain, 0).reshape(x.shape) * self.weight + self.bias
