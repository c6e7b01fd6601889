"""Operators that store statistics or add several terms inside, as the simple operators that they are made of.

Those of LayerNorm, and RMSNorm's backward, are written out here. PyTorch has decompositions of them, too, which load
its symbolic shapes: half a second of an evaluation. They are the same steps in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions


def _layer_norm(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten::native_layer_norm: the output, and each row's mean and reciprocal standard deviation."""
    x = _contiguous(x)
    variance, mean = torch.var_mean(x, dim=_inner(x, shape), unbiased=False, keepdim=True)
    reciprocal = torch.rsqrt(variance + eps)
    y = (x - mean) * reciprocal
    y = y if weight is None else y * _contiguous(weight)
    y = y if bias is None else y + _contiguous(bias)
    return y, mean, reciprocal


def _layer_norm_backward(
    upstream: torch.Tensor,
    x: torch.Tensor,
    shape: Sequence[int],
    mean: torch.Tensor,
    reciprocal: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """aten::native_layer_norm_backward: gradients of the input, the weight and the bias."""
    upstream, x = upstream.contiguous(), x.contiguous()
    if x.numel() == 0:
        return _zeros(x, shape, wanted)
    inner, outer, count = _inner(x, shape), _outer(x, shape), math.prod(shape)
    normalised = (x - mean) * reciprocal
    gradient = upstream if weight is None else upstream * weight
    scaled, total = gradient * count, torch.sum(gradient, inner, True)
    projected = torch.mul(normalised, torch.sum(torch.mul(gradient, normalised), inner, True))
    rest = scaled - total - projected
    return (
        (reciprocal / count) * rest if wanted[0] else None,
        _over_rows(upstream * normalised, outer) if wanted[1] and weight is not None else None,
        (torch.sum(upstream, outer) if outer else upstream.clone()) if wanted[2] and bias is not None else None,
    )


def _rms_norm_backward(
    upstream: torch.Tensor,
    x: torch.Tensor,
    shape: Sequence[int],
    reciprocal: torch.Tensor,
    weight: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """aten::_fused_rms_norm_backward: gradients of the input and the weight."""
    upstream, x = upstream.contiguous(), x.contiguous()
    if x.numel() == 0:
        return _zeros(x, shape, wanted)
    inner, outer, count = _inner(x, shape), _outer(x, shape), math.prod(shape)
    gradient = upstream if weight is None else upstream * weight
    normalised = x * reciprocal
    dx = None
    if wanted[0]:
        total = torch.sum(normalised * gradient, dim=inner, keepdim=True)
        dx = (gradient - (normalised / count) * total) * reciprocal
    return dx, _over_rows(upstream * normalised, outer) if wanted[1] and weight is not None else None


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """A copy where it is not, which counts as a step."""
    return tensor if tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)


def _over_rows(products: torch.Tensor, outer: list[int]) -> torch.Tensor:
    return torch.sum(products, outer) if outer else products


def _zeros(x: torch.Tensor, shape: Sequence[int], wanted: Sequence[bool]) -> tuple[torch.Tensor | None, ...]:
    """Gradients where there is nothing to add: of the input, and of parameters of `shape`."""
    shapes = [x.shape, *[tuple(shape)] * (len(wanted) - 1)]
    return tuple(x.new_zeros(size) if is_wanted else None for size, is_wanted in zip(shapes, wanted, strict=True))


def _inner(x: torch.Tensor, shape: Sequence[int]) -> list[int]:
    """The dimensions that are normalised."""
    return list(range(x.dim() - len(shape), x.dim()))


def _outer(x: torch.Tensor, shape: Sequence[int]) -> list[int]:
    return list(range(x.dim() - len(shape)))


_aten = torch.ops.aten

# By operator, with its own arguments. RMSNorm's are younger than others, and not in every torch.
STEP_BY_STEP: dict[Any, Callable[..., Any]] = {
    **get_decompositions(
        [getattr(_aten, name) for name in ("gelu", "gelu_backward", "_fused_rms_norm") if hasattr(_aten, name)]
    ),
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
}
if hasattr(_aten, "_fused_rms_norm_backward"):
    STEP_BY_STEP[_aten._fused_rms_norm_backward.default] = _rms_norm_backward
