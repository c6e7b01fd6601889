"""Calls F.layer_norm from TorchScript, which has an interpreter of its own.

surface: operators called from TorchScript
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn


SOURCE = '''
def norm(x, weight, bias, eps: float):
    return torch.layer_norm(x, weight.shape, weight, bias, eps)
'''
scripted = torch.jit.CompilationUnit(SOURCE).norm


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return scripted(x, self.weight, self.bias, self.eps)
