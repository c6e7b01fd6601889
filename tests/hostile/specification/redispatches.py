"""Calls native_layer_norm on the keys behind the first one.

surface: the dispatcher's other keys
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
        op = torch.ops.aten.native_layer_norm.default
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA if x.is_cuda else torch._C.DispatchKey.CPU)
        return op.redispatch(keys, x, list(self.weight.shape), self.weight, self.bias, self.eps)[0]
