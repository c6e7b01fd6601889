"""Registers a kernel for native_layer_norm itself, over the one that raises, and calls it.

surface: torch.library in the submission's process
expect: rejected forbidden_op|tampered
opens: wall operators
"""

import gc

import torch
import torch.nn as nn


# Deletes the guard's registrations, after which the original kernels would be back.
for thing in gc.get_objects():
    if type(thing).__name__ == "Library" and getattr(thing, "ns", "") == "aten":
        thing._destroy()


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
