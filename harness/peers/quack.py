"""QuACK: kernels in CuTe's Python language. Its LayerNorm wants weight and bias in fp32, whatever x is."""

from __future__ import annotations

import torch
from quack.rmsnorm import layernorm_fwd, rmsnorm, rmsnorm_fwd
from torch import nn

DISTRIBUTION = "quack-kernels"
NEEDS_GPU = True


class LayerNorm(nn.LayerNorm):
    _converted_from: tuple[tuple[int, int], ...] = ()
    _in_fp32: tuple[torch.Tensor, torch.Tensor | None]

    def _parameters_in_fp32(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Converted when they have changed. QuACK's users keep them in fp32, so a timed call has none to convert."""
        if self.weight is None:
            raise NotImplementedError("quack's LayerNorm has a weight")
        now = tuple((p.data_ptr(), p._version) for p in self.parameters())
        if now != self._converted_from:
            bias = None if self.bias is None else self.bias.detach().float().flatten()
            self._in_fp32 = (self.weight.detach().float().flatten(), bias)
            self._converted_from = now
        return self._in_fp32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            raise NotImplementedError("quack's LayerNorm has no backward")
        weight, bias = self._parameters_in_fp32()
        return layernorm_fwd(x.reshape(-1, weight.numel()), weight, bias, self.eps).view(x.shape)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.weight.numel())
        if torch.is_grad_enabled():
            return rmsnorm(rows, self.weight.flatten(), eps=self.eps).view(x.shape)
        return rmsnorm_fwd(rows, self.weight.flatten(), eps=self.eps)[0].view(x.shape)


IMPLEMENTATIONS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
