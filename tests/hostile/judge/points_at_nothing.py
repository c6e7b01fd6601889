"""Says that its output lies at an address where nothing is mapped.

surface: addresses that the judge reads
needs: cpu
expect: rejected bad_output
opens: given HARMLESS
"""

import msgspec

import harness.worker.memory as memory
import harness.worker.session as session

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


REAL = memory.describe
if not HARMLESS:
    memory.describe = lambda tensor: msgspec.structs.replace(REAL(tensor), address=4096, allocation_offset=1 << 50)
memory.HostMemory.export = lambda self, tensors, handles: [memory.describe(tensor) for tensor in tensors]


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def right(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias

    def forward(self, x):
        return self.right(x).contiguous()
