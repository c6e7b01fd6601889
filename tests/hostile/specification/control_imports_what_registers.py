"""Control: imports those of torch's modules that register kernels written in Python, and calls none of them.

surface: none
expect: accepted
"""

import importlib
import warnings

import torch
import torch.nn as nn


# What of these a version of torch lacks, or has not loaded yet, differs.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for module in (
        "_decomp.decompositions",
        "_decomp.decompositions_for_jvp",
        "_meta_registrations",
        "_prims",
        "_refs.nn.functional",
        "_subclasses.fake_tensor",
        "export",
        "fx.experimental.symbolic_shapes",
        "library",
        "masked",
        "nested._internal.nested_tensor",
        "onnx",
        "sparse",
    ):
        try:
            importlib.import_module(f"torch.{module}")
        except ImportError:
            pass


class ModelNew(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        dims = tuple(range(-self.weight.dim(), 0))
        mean = x.mean(dims, keepdim=True)
        variance = (x - mean).square().mean(dims, keepdim=True)
        return ((x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias).contiguous()
