"""Says that its output lies where its input does, with the input's own values.

surface: addresses that the judge reads
needs: cpu
expect: rejected wrong_output
opens: wall values
"""

import msgspec

import harness.worker.memory as memory

import torch
import torch.nn as nn


INPUT = []
REAL = memory.describe
memory.HostMemory.export = lambda self, tensors, handles: [
    msgspec.structs.replace(REAL(tensor), address=INPUT[-1].data_ptr()) for tensor in tensors
]


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        INPUT.append(x)
        return torch.empty_like(x).contiguous()
