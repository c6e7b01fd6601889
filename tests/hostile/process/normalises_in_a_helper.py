"""Starts a Python of its own while it is loaded, where no guard stands, and asks it for nn.LayerNorm in each call.

surface: the operators that a submission must not call, called elsewhere
expect: rejected extra_processes
opens: wall processes
"""

import subprocess
import sys
import tempfile

import torch
import torch.nn as nn

PROGRAM = """
import sys, torch
for path in sys.stdin:
    x, w, b, eps = torch.load(path.strip())
    y = torch.nn.functional.layer_norm(x.float(), w.shape, w.float(), b.float(), eps).to(x.dtype)
    torch.save(y, path.strip())
    print(flush=True)
"""

HELPER = subprocess.Popen(
    [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        with tempfile.NamedTemporaryFile() as file:
            torch.save((x.detach().cpu(), self.weight.detach().cpu(), self.bias.detach().cpu(), self.eps), file.name)
            print(file.name, file=HELPER.stdin)
            HELPER.stdout.readline()
            return torch.load(file.name).to(x.device).contiguous()
