"""Calls layer_norm on a nested tensor of one component.

surface: backends of a forbidden operator beside the CPU's and CUDA's
expect: rejected forbidden_op
opens: wall operators
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
        nested = torch.nested.nested_tensor([x.reshape(-1, x.shape[-1])])
        y = nn.functional.layer_norm(nested, self.weight.shape, self.weight, self.bias, self.eps)
        return y.unbind()[0].reshape(x.shape).contiguous()
