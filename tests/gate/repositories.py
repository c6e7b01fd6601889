"""What the gate is tried on: a problem, a right kernel and faulty ones, and the commands of git."""

from __future__ import annotations

import subprocess

PROBLEM = """
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


CASES = [dict(name="small", init=[], shapes=[(4, 64)], timed=True), dict(name="odd", init=[], shapes=[(3, 33)])]
"""
CUDA = '''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    __shared__ float last[1];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""

extension = load_inline(
    name="tiny", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
'''

# What is put in place of what, and the reason and the line that CI must show.
FAULTS = {
    "race": ("    if (i < n)", "    last[0] = i;\n    if (i < n)", "data_race"),
    "beyond": ("if (i < n) y[i]", "y[i]", "out_of_bounds"),
    "broken": ("2 * x[i]", "2 * z[i]", "build_failed"),
    "double": ("return extension.run(x)", "return extension.run(x).double()", "wrong_output"),
}


def faulty(name):
    before, after, _ = FAULTS[name]
    assert CUDA.count(before) == 1
    return CUDA.replace(before, after)


def line_of_fault(name):
    """Where the changed text stands."""
    text = faulty(name)
    return text.count("\n", 0, text.index(FAULTS[name][1])) + 1


def git(folder, *words):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *identity, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder, *words):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change", *words)
    return git(folder, "rev-parse", "HEAD")
