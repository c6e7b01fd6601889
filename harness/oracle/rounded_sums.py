"""How far sums of many terms may be off, wherever a reference has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.oracle.operators import Operators
from harness.oracle.pieces import pieces
from harness.oracle.step_by_step import WITH_SUMS

_aten = torch.ops.aten


# In standard deviations. If a kernel could add rows in order whatever their mean is, nothing would be left to judge: of
# 4,096 elements of N(1e4, 1) the mean is off by a fiftieth of the standard deviation then, of a million by a third, and
# where means are smaller E[x^2] - m^2 is no worse.
LARGE_MEAN = 4.0


class RoundedSums(Operators):
    """Changes each sum by what adding its terms one after the other rounds away, signs at random: products of matrices,
    convolutions, sums, means, variances, norms, losses, and those inside of normalisations and softmax.

    A sum of K terms is rounded K times, by eps / 2 of what it has come to. With signs that cancel that is up to the
    root of all squares of the terms; with a mean it grows steadily to the sum S itself, and its squares add up to
    K S^2 / 3. So a sum changes by eps / 2 of sqrt(K (sum of squares + S^2 / 3)). Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd edition, section 4.2, with errors of random sign. Of terms of one sign the squares are
    little beside that of their sum: they change it by eps / 2 of sqrt(K / 3) S."""

    def __init__(self, eps: float, generator: torch.Generator) -> None:
        super().__init__()
        self._eps = eps
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in WITH_SUMS:
            with self:
                return WITH_SUMS[func](*args, **kwargs)
        result = func(*args, **kwargs)
        if func in _ROUNDED and args[0].is_floating_point():
            rounded = result if isinstance(result, tuple) else (result,)
            for value, size in zip(rounded, _ROUNDED[func](func, args, kwargs, result), strict=False):
                if size is not None:
                    self._change(value, size)
        return result

    def _change(self, value: torch.Tensor, size: torch.Tensor) -> None:
        """Add eps / 2 of `size` to `value`, with a random sign for each of the size's elements, which may be fewer."""
        signs = torch.randint(0, 2, size.shape, generator=self._generator, device=size.device, dtype=torch.int8)
        for _, (piece, some, sign) in pieces(value, size.expand_as(value), signs.expand_as(value)):
            piece += (sign * 2 - 1) * (self._eps / 2) * some


def is_sum(operator: Any) -> bool:
    """Whether what `operator` gives is changed here."""
    return operator in WITH_SUMS or operator in _ROUNDED


# What gives how large each result's rounding is, in eps / 2, and None for a result that is none: of the operator, its
# arguments, keywords and result.
_Rule = Callable[[Any, Sequence[Any], dict[str, Any], Any], tuple[torch.Tensor | None, ...]]


def _of_one_sign(terms: float, total: torch.Tensor) -> torch.Tensor:
    return math.sqrt(terms / 3) * total.abs()


def _of_mean(terms: float, mean: torch.Tensor, mean_of_squares: torch.Tensor) -> torch.Tensor:
    return (mean_of_squares + terms / 3 * mean.square()).sqrt()


def _of_statistic(terms: float, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Of a mean that is taken off its terms. Beyond LARGE_MEAN it is as if it was that large."""
    steady = torch.minimum(mean.square(), LARGE_MEAN**2 * variance)
    return (variance + mean.square() + terms / 3 * steady).sqrt()


def _per_result(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> float:
    """How many elements of the first argument each element of a reduction comes from."""
    return args[0].numel() / max(result.numel(), 1)


def _sum(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    terms, squares = _per_result(func, args, kwargs, result), _sum_of_squares(*args, **kwargs)
    return ((terms * (squares + result.square() / 3)).sqrt(),)


def _mean(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    terms = _per_result(func, args, kwargs, result)
    return (_of_mean(terms, result, _sum_of_squares(*args, **kwargs) / terms),)


def _sum_of_squares(
    x: torch.Tensor, dims: Sequence[int] | None = None, keepdim: bool = False, **other: Any
) -> torch.Tensor:
    """Over the dimensions that a sum or a mean with these arguments goes over; without a copy of `x`."""
    return torch.linalg.vector_norm(x, 2, dims or None, keepdim).square()


def _pooled(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    terms = _per_result(func, args, kwargs, result)
    return (_of_mean(terms, result, func(args[0].square(), *args[1:], **kwargs)),)


def _average(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Pooling, with a window of the size that is its second argument."""
    dimensions, window = (2 if func is _aten.avg_pool2d.default else 3), args[1]
    terms = math.prod(window) if len(window) == dimensions else window[0] ** dimensions
    return (_of_mean(terms, result, func(args[0].square(), *args[1:], **kwargs)),)


def _running(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    terms = torch.ones((), dtype=result.dtype, device=result.device)
    if result.dim():
        terms = torch.arange(1, result.shape[args[1]] + 1, dtype=result.dtype, device=result.device)
        terms = terms.view(-1, *[1] * (result.dim() - 1)).movedim(0, args[1])
    return ((terms * (func(args[0].square(), *args[1:], **kwargs) + result.square() / 3)).sqrt(),)


def _variance(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> tuple[torch.Tensor, ...]:
    """With the mean or without. The squares of deviations are of one sign; half of their rounding is their root's."""
    spread, *means = result if isinstance(result, tuple) else (result,)
    terms, root = _per_result(func, args, kwargs, spread), func in _ROOTS
    variance = spread.square() if root else spread
    sizes = [_of_one_sign(terms, spread) * (0.5 if root else 1)]
    return (*sizes, *(_of_statistic(terms, mean, variance) for mean in means))


def _norm(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The p-th root of a sum of powers; the largest or the smallest element is no sum."""
    power = abs(args[1] if len(args) > 1 else 2)
    if power in (0, math.inf):
        return ()
    return (_of_one_sign(_per_result(func, args, kwargs, result), result) / power,)


def _log_of_sum(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return (torch.full_like(result, math.sqrt(_per_result(func, args, kwargs, result) / 3)),)


def _loss(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> tuple[torch.Tensor, ...]:
    """Their second argument has an element for each term."""
    loss = result[0] if isinstance(result, tuple) else result
    return (_of_one_sign(args[1].numel(), loss),) if loss.dim() == 0 else ()


def _product(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: torch.Tensor) -> tuple[torch.Tensor, ...]:
    one, other = (args[position] for position in _FACTORS[func])
    if func is _aten.convolution.default:
        transposed = args[6]
        squares = func(one.square(), other.square(), None, *args[3:])
        terms = math.prod(other.shape) // other.shape[1 if transposed else 0]
    else:
        squares, terms = one.square() @ other.square(), one.shape[-1]
    return ((terms * (squares + result.square() / 3)).sqrt(),)


def _convolution_backward(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of a convolution's input, weight and bias: each is a sum of products, the last of upstream alone."""
    upstream, x, weight = args[:3]
    squares = func(upstream.square(), x.square(), weight.square(), *args[3:], **kwargs)
    of_bias = upstream.square().sum([dim for dim in range(upstream.dim()) if dim != 1])
    transposed = args[7]
    places = upstream.numel() // max(upstream.shape[1], 1)
    terms = (weight.numel() // max(weight.shape[1 if transposed else 0], 1), places, places)
    return tuple(
        None if gradient is None else (count * (square + gradient.square() / 3)).sqrt()
        for gradient, count, square in zip(result, terms, (*squares[:2], of_bias), strict=True)
    )


# Where the factors stand among an operator's arguments.
_FACTORS = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.mv.default: (0, 1),
    _aten.dot.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _aten.convolution.default: (0, 1),
}


def _overloads(*operators: Any) -> tuple[Any, ...]:
    return tuple(getattr(o, name) for o in operators for name in ("default", "dim", "correction"))


_ROOTS = _overloads(_aten.std, _aten.std_mean)

_RULES: dict[_Rule, tuple[Any, ...]] = {
    _product: tuple(_FACTORS),
    _convolution_backward: (_aten.convolution_backward.default,),
    _sum: (_aten.sum.default, _aten.sum.dim_IntList),
    _mean: (_aten.mean.default, _aten.mean.dim),
    _pooled: (_aten._adaptive_avg_pool2d.default, _aten._adaptive_avg_pool3d.default),
    _average: (_aten.avg_pool2d.default, _aten.avg_pool3d.default),
    _running: (_aten.cumsum.default,),
    _variance: (*_overloads(_aten.var, _aten.var_mean), *_ROOTS),
    _norm: (_aten.linalg_vector_norm.default,),
    _log_of_sum: (_aten.logsumexp.default,),
    _loss: (
        _aten.mse_loss.default,
        _aten.nll_loss_forward.default,
        _aten.smooth_l1_loss.default,
        _aten.huber_loss.default,
        _aten.binary_cross_entropy.default,
    ),
}
_ROUNDED: dict[Any, _Rule] = {operator: rule for rule, operators in _RULES.items() for operator in operators}
