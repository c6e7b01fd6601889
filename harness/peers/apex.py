"""NVIDIA Apex: hand-written CUDA kernels, which were what one used before PyTorch had fused ones."""

from __future__ import annotations

import torch
from apex.normalization.fused_layer_norm import fused_layer_norm, fused_layer_norm_affine, fused_rms_norm_affine
from torch import nn

DISTRIBUTION = "apex"


class LayerNorm(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight is None:
            return fused_layer_norm(x, self.normalized_shape, self.eps)
        if self.bias is None:
            raise NotImplementedError("apex has no LayerNorm with a weight and without a bias")
        return fused_layer_norm_affine(x, self.weight, self.bias, self.normalized_shape, self.eps)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fused_rms_norm_affine(x, self.weight, self.normalized_shape, self.eps)


IMPLEMENTATIONS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
