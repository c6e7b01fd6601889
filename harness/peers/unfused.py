"""The formulas as one writes them first: an operator of PyTorch for each step, a kernel for each operator."""

from __future__ import annotations

import torch
from torch import nn

DISTRIBUTION = "torch"


class LayerNorm(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dims = tuple(range(-len(self.normalized_shape), 0))
        mean = x.mean(dims, keepdim=True)
        variance = ((x - mean) ** 2).mean(dims, keepdim=True)
        y = (x - mean) / torch.sqrt(variance + self.eps)
        if self.weight is not None:
            y = y * self.weight
        if self.bias is not None:
            y = y + self.bias
        return y


class RMSNorm(nn.RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dims = tuple(range(-len(self.normalized_shape), 0))
        assert self.eps is not None
        rms = torch.sqrt((x**2).mean(dims, keepdim=True) + self.eps)
        return x / rms * self.weight


class AddLayerNorm(LayerNorm):
    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        total = x + residual
        return super().forward(total), total


class BiasGelu(nn.Module):
    def __init__(self, features: int, approximate: str = "none") -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.approximate = approximate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = x + self.bias
        if self.approximate == "tanh":
            return 0.5 * v * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (v + 0.044715 * v**3)))
        return 0.5 * v * (1 + torch.erf(v / 2**0.5))


IMPLEMENTATIONS = {
    "layernorm": LayerNorm,
    "rmsnorm": RMSNorm,
    "add_layernorm": AddLayerNorm,
    "bias_gelu": BiasGelu,
}
