"""Starts a Python of its own in each call, where no guard stands, and has it run nn.LayerNorm.

surface: the operators that a submission must not call, called elsewhere
expect: rejected raised
opens: wall processes
case: large eps
"""

import subprocess
import sys
import tempfile

import torch
import torch.nn as nn

PROGRAM = """
import sys, torch
x, w, b, eps = torch.load(sys.argv[1])
torch.save(torch.nn.functional.layer_norm(x.float(), w.shape, w.float(), b.float(), eps).to(x.dtype), sys.argv[1])
"""


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        with tempfile.NamedTemporaryFile() as file:
            torch.save((x.detach().cpu(), self.weight.detach().cpu(), self.bias.detach().cpu(), self.eps), file.name)
            subprocess.run([sys.executable, "-c", PROGRAM, file.name], check=True, timeout=50)
            return torch.load(file.name).to(x.device).contiguous()
