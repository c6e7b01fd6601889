"""Operators that store statistics or add several terms inside, as the simple operators that they are made of.

Normalisations, RMSNorm's backward, softmax and GELU are written out here. PyTorch has decompositions of them, too,
which load its symbolic shapes or, for GELU, its compiler: half a second of an evaluation, and two. They are the same
steps in the same order.
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
    y, mean, _, reciprocal = _normalised(_contiguous(x), _inner(x, shape), eps)
    y = y if weight is None else y * _contiguous(weight)
    y = y if bias is None else y + _contiguous(bias)
    return y, mean, reciprocal


def _group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten::native_group_norm: the output, and each group's mean and reciprocal standard deviation."""
    grouped = _contiguous(x).reshape(batch, groups, channels // groups * inner)
    y, mean, _, reciprocal = _normalised(grouped, [2], eps)
    return _of_channels(y.reshape(x.shape), weight, bias), mean.squeeze(2), reciprocal.squeeze(2)


def _batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten::native_batch_norm: the output, and each channel's mean and reciprocal standard deviation, which are empty
    in evaluation. InstanceNorm is one with a channel for each row."""
    if not training:
        assert running_mean is not None and running_var is not None
        reciprocal = torch.rsqrt(running_var + eps)
        y = (x - _channel(running_mean, x)) * _channel(reciprocal, x)
        return _of_channels(y, weight, bias), x.new_empty(0), x.new_empty(0)
    y, mean, variance, reciprocal = _normalised(x, [d for d in range(x.dim()) if d != 1], eps)
    y = _of_channels(y, weight, bias)
    count = x.numel() // max(x.shape[1], 1)
    for running, statistic in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
        if running is not None:
            running.mul_(1 - momentum).add_(momentum * statistic.flatten())
    return y, mean.flatten(), reciprocal.flatten()


def _cudnn_batch_norm(x: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
    """aten::cudnn_batch_norm: as `_batch_norm`, and room that cuDNN reserves for its backward."""
    return (*_batch_norm(x, *others), x.new_empty(0, dtype=torch.uint8))


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


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """aten::_softmax."""
    powers = torch.exp(x - _largest(x, dim))
    return powers / torch.sum(powers, dim, True)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """aten::_log_softmax."""
    shifted = x - _largest(x, dim)
    return shifted - torch.log(torch.sum(torch.exp(shifted), dim, True))


def _softmax_backward(upstream: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """aten::_softmax_backward_data: `y` is the softmax."""
    return y * (upstream - torch.sum(upstream * y, dim, True))


def _log_softmax_backward(upstream: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """aten::_log_softmax_backward_data: `y` is the logarithm."""
    return upstream - torch.exp(y) * torch.sum(upstream, dim, True)


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """aten::gelu: `x` times the normal distribution's share below it, which the tanh form approximates."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(_TANH_SCALE * (x + _TANH_CUBE * (x * x * x))))
    return x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))


def _gelu_backward(upstream: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """aten::gelu_backward."""
    if approximate == "tanh":
        square = x * x
        tanh = torch.tanh(_TANH_SCALE * (x + _TANH_CUBE * (square * x)))
        half, share = 0.5 * x, 0.5 * (1 + tanh)
        slope = half * (1 - tanh * tanh) * (_TANH_SCALE * (1 + 3 * _TANH_CUBE * square))
        return upstream * (share + slope)
    share = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
    density = math.sqrt(0.5 / math.pi) * torch.exp(x * x * -0.5)
    return upstream * (share + x * density)


# Of GELU's tanh form.
_TANH_SCALE, _TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


def _largest(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Of each row, which is taken off before powers are computed."""
    return torch.amax(x, dim, True) if x.numel() else x


def _normalised(x: torch.Tensor, dims: list[int], eps: float) -> tuple[torch.Tensor, ...]:
    """`x` less its mean over `dims` and divided by its standard deviation; the mean, the variance and the reciprocal
    standard deviation."""
    variance, mean = torch.var_mean(x, dim=dims, unbiased=False, keepdim=True)
    reciprocal = torch.rsqrt(variance + eps)
    return (x - mean) * reciprocal, mean, variance, reciprocal


def _channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value for each channel of `x`, its second dimension."""
    return values.reshape(-1, *[1] * (x.dim() - 2))


def _of_channels(y: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    y = y if weight is None else y * _channel(weight, y)
    return y if bias is None else y + _channel(bias, y)


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


def _decompositions(*names: str) -> dict[Any, Callable[..., Any]]:
    """PyTorch's own, of those operators that this torch has."""
    return get_decompositions([getattr(_aten, name) for name in names if hasattr(_aten, name)])


# By operator, with its own arguments: what has sums inside. RMSNorm's are younger than others.
WITH_SUMS: dict[Any, Callable[..., Any]] = {
    **_decompositions("_fused_rms_norm"),
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.native_group_norm.default: _group_norm,
    _aten.native_batch_norm.default: _batch_norm,
    _aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    _aten._softmax.default: _softmax,
    _aten._log_softmax.default: _log_softmax,
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten._log_softmax_backward_data.default: _log_softmax_backward,
}
if hasattr(_aten, "_fused_rms_norm_backward"):
    WITH_SUMS[_aten._fused_rms_norm_backward.default] = _rms_norm_backward

# And what stores results that are rounded.
STEP_BY_STEP: dict[Any, Callable[..., Any]] = {
    _aten.gelu.default: _gelu,
    _aten.gelu_backward.default: _gelu_backward,
    **WITH_SUMS,
}
