"""Control: runs a compiler when its first model is constructed, and threads in its calls.

surface: none
expect: accepted
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn

versions = []


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        if not versions:
            versions.append(subprocess.run(["c++", "--version"], capture_output=True, check=True).stdout)
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def normalised(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        with ThreadPoolExecutor(1) as threads:
            y = threads.submit(self.normalised, x.detach()).result()
        return (y * self.weight + self.bias).contiguous()
