"""Sends a pickle that runs a program when it is loaded.

surface: unpickling of what the submission's side sent
expect: rejected bad_message
opens: given HARMLESS
"""

import os
import pickle
import struct

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/kernelgate_pickle_was_loaded",)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        if HARMLESS:
            y = (x - x.mean(-1, keepdim=True)).contiguous()
            return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        body = pickle.dumps(Bomb())
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, struct.pack("!I", len(body)) + body)
            except OSError:
                pass
        return torch.zeros_like(x).contiguous()
