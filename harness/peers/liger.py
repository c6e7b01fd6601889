"""Liger Kernel: Triton kernels for training language models, a program for each row."""

from __future__ import annotations

import torch
from liger_kernel.ops import LigerLayerNormFunction, LigerRMSNormFunction
from torch import nn

DISTRIBUTION = "liger-kernel"
NEEDS_GPU = True


class LayerNorm(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight is None or self.bias is None:
            raise NotImplementedError("liger's LayerNorm has a weight and a bias")
        rows = x.reshape(-1, self.weight.numel())
        return LigerLayerNormFunction.apply(rows, self.weight.flatten(), self.bias.flatten(), self.eps).view(x.shape)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.weight.numel())
        return LigerRMSNormFunction.apply(rows, self.weight.flatten(), self.eps).view(x.shape)


IMPLEMENTATIONS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
