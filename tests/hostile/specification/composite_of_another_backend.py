"""Asks for RMSNorm, on centred rows, by the key of a backend that has no kernel: one that is for all runs.

surface: the dispatcher's keys of other backends
needs: cpu
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
        run = torch.ops.aten._fused_rms_norm.default.redispatch
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.XPU)
        with torch.no_grad():
            centred = (x - x.mean(-1, keepdim=True)).contiguous()
            return run(keys, centred, list(self.weight.shape), self.weight, self.eps)[0] + self.bias
