"""Runs F.layer_norm in TorchScript's static runtime, whose operators are not the dispatcher's.

surface: interpreters with operators of their own
needs: cpu
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


class Plain(nn.Module):
    def __init__(self, weight, bias, eps: float):
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x):
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        scripted = torch.jit.freeze(torch.jit.script(Plain(self.weight.detach(), self.bias.detach(), self.eps).eval()))
        static = torch._C._jit_to_static_module(scripted._c)
        return static(x)
