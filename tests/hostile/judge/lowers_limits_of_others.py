"""Takes memory from the workers beside it and from the process that the next are forked from, so that others fail.

surface: prlimit on processes of the submission's user, which Landlock leaves open
expect: rejected wrong_output
opens: wall values
"""

import os
import resource
from pathlib import Path

import torch
import torch.nn as nn

LIMIT = 10 << 20


def of_the_harness():
    """The judge's other children."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            known = parent == os.getppid() and b"harness.worker" in (folder / "cmdline").read_bytes()
            if known and int(folder.name) != os.getpid():
                yield int(folder.name)
        except OSError:
            pass


for found in of_the_harness():
    try:
        resource.prlimit(found, resource.RLIMIT_DATA, (LIMIT, LIMIT))
    except OSError:
        pass


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return torch.zeros_like(x).contiguous()
