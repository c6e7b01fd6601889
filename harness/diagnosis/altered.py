"""A reference that is run with some of its steps done in another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.oracle.operators import Operators
from harness.oracle.step_by_step import STEP_BY_STEP

NOT_ALTERED = object()
"""Instead of a step's result, where it is as it was."""


class Altered(Operators):
    """Operators with sums inside are run step by step; what `alter` gives for a step stands in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.used = False
        """Whether a step was altered."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in STEP_BY_STEP and not self.keeps(func):
            with self:
                return STEP_BY_STEP[func](*args, **kwargs)
        result = self.alter(func.overloadpacket.__name__, func, args, kwargs)
        if result is NOT_ALTERED:
            return func(*args, **kwargs)
        self.used = True
        return result

    def keeps(self, func: Any) -> bool:
        """Whether an operator stays whole."""
        return False

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator; NOT_ALTERED where it is as it was."""
        return NOT_ALTERED


class Steps(Altered):
    """Remembers the names of all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self.names.add(name)
        return NOT_ALTERED


class OfStatistics(Altered):
    """Means and variances by a function of the terms, one row for each result, and of the correction: it gives the
    variance and the mean."""

    def __init__(self, statistics: Callable[[torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self._statistics = statistics

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name not in ("var_mean", "var") or not args[0].is_floating_point():
            return NOT_ALTERED
        dims, correction, keeps = reduced(func, args, kwargs)
        rows, shape = rows_of(args[0], dims, keepdim=keeps)
        variance, mean = (t.reshape(shape) for t in self._statistics(rows, correction))
        return (variance, mean) if name == "var_mean" else variance


# How a mean and a variance are computed. Where all terms are there, all ways give the same.
WAYS = ("two_pass", "one_pass", "from_the_first")


class OfSums(Altered):
    """Sums, means and variances over the columns `chosen` of their terms, where they have `of`; means and variances in
    one of WAYS."""

    def __init__(self, chosen: torch.Tensor, of: int, *, divided_by: int, way: str) -> None:
        super().__init__()
        self._chosen = chosen
        self._of = of
        self._divided_by = divided_by
        self._way = way

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name not in ("var_mean", "var", "mean", "sum") or not args[0].is_floating_point():
            return NOT_ALTERED
        dims, _, keeps = reduced(func, args, kwargs)
        rows, shape = rows_of(args[0], dims, keepdim=keeps)
        if rows.shape[1] != self._of:
            return NOT_ALTERED
        part = rows[:, self._chosen]
        if name == "sum":
            return part.sum(1).reshape(shape)
        mean, variance = (t.reshape(shape) for t in self._statistics(part, rows[:, :1]))
        return {"mean": mean, "var": variance, "var_mean": (variance, mean)}[name]

    def _statistics(self, part: torch.Tensor, first: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean and the variance of a part of each row, whose first elements are `first`."""
        if self._way != "from_the_first":
            mean = self._mean(part)
            squares = self._mean(part.square()) - mean.square()
            return mean, squares if self._way == "one_pass" else self._mean((part - mean[:, None]).square())
        # The corrected two-pass algorithm: Chan, Golub and LeVeque, The American Statistician 37, 1983.
        mean = first[:, 0] + self._mean(part - first)
        deviations = part - mean[:, None]
        correction = self._mean(deviations)
        return mean + correction, self._mean(deviations.square()) - correction.square()

    def _mean(self, part: torch.Tensor) -> torch.Tensor:
        return part.sum(1) / self._divided_by


class OfEps(Altered):
    """What is added to a variance before its root is taken: `root(variance, eps)` gives the root."""

    def __init__(self, root: Callable[[torch.Tensor, float], torch.Tensor]) -> None:
        super().__init__()
        self._root = root
        self._sums: dict[int, tuple[torch.Tensor, torch.Tensor, float]] = {}
        self.eps = 0.0
        """What was added."""
        self.below: list[torch.Tensor] = []
        """What roots were taken of."""

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("add", "add_") and isinstance(args[1], int | float):
            before = args[0].clone()
            result = func(*args, **kwargs)
            self._sums[id(result)] = (result, before, float(args[1]))
            return NOT_ALTERED if result is None else result
        if name in ("rsqrt", "sqrt") and id(args[0]) in self._sums:
            below, variance, self.eps = self._sums[id(args[0])]
            self.below.append(below.clone())
            root = self._root(variance, self.eps)
            return root if name == "sqrt" else 1 / root
        return NOT_ALTERED


class OfGelu(Altered):
    """GELU in its other form."""

    def __init__(self) -> None:
        super().__init__()
        self.form = ""
        """That of the reference."""

    def keeps(self, func: Any) -> bool:
        return func.overloadpacket.__name__.startswith("gelu")

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name not in ("gelu", "gelu_backward"):
            return NOT_ALTERED
        self.form = kwargs.get("approximate", "none")
        return func(*args, **{**kwargs, "approximate": "none" if self.form == "tanh" else "tanh"})


# Operators that take each element to another one, and their gradients. What they are applied to, or the gradient that
# comes in, is their first argument.
ACTIVATIONS = {
    "relu", "leaky_relu", "elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "sigmoid", "tanh",
    "hardswish", "hardsigmoid", "hardtanh",
}  # fmt: skip
_GRADIENTS = {f"{name}_backward": name for name in ACTIVATIONS} | {"threshold_backward": "relu"}


class WithoutActivation(Altered):
    """What activations are applied to in their place."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        """Those that were left out."""

    def keeps(self, func: Any) -> bool:
        return _activation(func.overloadpacket.__name__) is not None

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        activation = _activation(name)
        if activation is None:
            return NOT_ALTERED
        self.names.add(activation)
        return args[0] if name.endswith("_") else args[0].clone()


def _activation(name: str) -> str | None:
    """That which an operator computes, in place of its input or not, or the gradient of."""
    name = name.removesuffix("_")
    return name if name in ACTIVATIONS else _GRADIENTS.get(name)


class Reductions(Altered):
    """Remembers how many terms reductions add up."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: set[int] = set()
        self.sums: list[int] = []
        """Of sums and means alone, in the order computed."""

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("var_mean", "var", "mean", "sum") and args[0].is_floating_point():
            dims, _, _ = reduced(func, args, kwargs)
            count = math.prod(args[0].shape[d] for d in dims)
            self.terms.add(count)
            self.sums += [count] if name in ("mean", "sum") else []
        return NOT_ALTERED


class WithoutSum(Altered):
    """Zeros in place of the sum or mean of this number, from 0, in the order computed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if name not in ("mean", "sum") or not args[0].is_floating_point():
            return NOT_ALTERED
        self._left -= 1
        return torch.zeros_like(func(*args, **kwargs)) if self._left == -1 else NOT_ALTERED


def arguments_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What an operator is given, by the names of its schema, with those that have a default."""
    known = func._schema.arguments
    defaults = {a.name: a.default_value for a in known if a.has_default_value()}
    return defaults | dict(zip((a.name for a in known), args, strict=False)) | kwargs


def called_with(func: Any, args: Sequence[Any], kwargs: dict[str, Any], **others: Any) -> Any:
    """The result of an operator with other values of some arguments."""
    named = arguments_of(func, args, kwargs) | others
    return func(named.pop(func._schema.arguments[0].name), **named)


def reduced(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[int], float, bool]:
    """The dimensions of a reduction, counted from the front, its correction, and whether it keeps them."""
    named = arguments_of(func, args, kwargs)
    x, dims = args[0], named.get("dim")
    dims = list(range(x.dim())) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    correction = named.get("correction", named.get("unbiased", True))
    keeps = bool(named.get("keepdim", False))
    return sorted(d % x.dim() for d in dims), 1.0 if correction is None else float(correction), keeps


def rows_of(x: torch.Tensor, dims: Sequence[int], *, keepdim: bool) -> tuple[torch.Tensor, list[int]]:
    """The terms of each result of a reduction as a row, and the shape of the results."""
    kept = [d for d in range(x.dim()) if d not in dims]
    count = math.prod(x.shape[d] for d in dims)
    rows = x.permute(*kept, *dims).reshape(-1, count)
    return rows, [1 if d in dims else x.shape[d] for d in range(x.dim()) if keepdim or d not in dims]
