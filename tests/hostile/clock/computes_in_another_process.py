"""A process of its own runs nn.LayerNorm, where no guard stands.

surface: the operators that a submission must not call, called elsewhere
needs: timing
expect: too_slow|rejected raised|timed_out|wrong_output|extra_processes|too_much_disk
"""

import subprocess
import sys
import tempfile

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.folder = tempfile.TemporaryDirectory()

    def forward(self, x):
        folder = self.folder.name
        torch.save((x, self.weight.detach(), self.bias.detach(), self.eps), f"{folder}/in")
        program = ("import sys, torch; x, w, b, e = torch.load(sys.argv[1] + '/in');"
                   "torch.save(torch.nn.functional.layer_norm(x, w.shape, w, b, e), sys.argv[1] + '/out')")
        subprocess.run([sys.executable, "-c", program, folder], check=True, timeout=50)
        return torch.load(f"{folder}/out")
