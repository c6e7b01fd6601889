"""Leaves a daemon in a session of its own, which forks again when its parent dies, and is right.

surface: processes that outlive an evaluation
expect: rejected extra_processes
opens: wall processes
"""

import subprocess
import sys

import torch
import torch.nn as nn


PROGRAM = "import os, time\nwhile True:\n    if os.fork():\n        os.setsid() if os.getpgrp() != os.getpid() else None\n        time.sleep(0.2)\n        os._exit(0)\n"
subprocess.Popen([sys.executable, "-S", "-c", PROGRAM], start_new_session=True)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)).contiguous()
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
