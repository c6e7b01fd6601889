"""Calls layer_norm on another thread.

surface: guards that stand on one thread
expect: rejected forbidden_op
opens: wall operators
"""

import torch
import torch.nn as nn

import threading

import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        result = []
        work = lambda: result.append(F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps))  # noqa: E731
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return result[0]
