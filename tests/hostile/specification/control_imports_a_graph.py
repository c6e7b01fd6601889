"""Control: writes and imports a module that has the name of one of the compiler's, and data of such a name.

surface: none
expect: accepted
"""

import importlib
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn


with tempfile.TemporaryDirectory() as folder:
    Path(folder, "graph.py").write_text("eps = 1e-5\n")
    sys.path.insert(0, folder)
    graph = importlib.import_module("graph")
    sys.path.remove(folder)
Path("scheduler.json").write_text("{}")


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=graph.eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        dims = tuple(range(-self.weight.dim(), 0))
        mean = x.mean(dims, keepdim=True)
        variance = (x - mean).square().mean(dims, keepdim=True)
        return ((x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias).contiguous()
