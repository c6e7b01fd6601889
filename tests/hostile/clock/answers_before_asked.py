"""A thread sends the reply to the next request before it is asked.

surface: replies that lie in the socket when the clock starts
expect: rejected bad_message
opens: given HARMLESS
"""

import contextlib
import os
import stat
import struct

import torch
import torch.nn as nn

HARMLESS = False  # whether it leaves out what it is refused for


REPLY = b'{"type":"ran","outputs":[[]],"issue_us":0.0}'


def sockets():
    return [n for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}") and stat.S_ISSOCK(os.fstat(n).st_mode)]


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
        if HARMLESS:
            y = (x - x.mean(-1, keepdim=True)).contiguous()
            return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        frame = struct.pack("!I", len(REPLY)) + REPLY
        for descriptor in sockets():
            with contextlib.suppress(OSError):  # CUDA's driver has a socket that is connected to nobody
                for _ in range(3):
                    os.write(descriptor, frame)
        return self.right(x).contiguous()
