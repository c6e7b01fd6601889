"""Asks for RMSNorm of centred rows with a weight of another dtype, which runs it without the fused operator.

surface: relatives of the operator
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        shape = self.weight.shape
        y = x.double() if x.dtype == torch.float32 else x.float()
        y = y - y.mean(tuple(range(-len(shape), 0)), keepdim=True)
        wider = torch.ones(shape, dtype=torch.float64 if y.dtype == torch.float32 else torch.float32, device=x.device)
        return (F.rms_norm(y, shape, wider, self.eps).to(x.dtype) * self.weight + self.bias).contiguous()
