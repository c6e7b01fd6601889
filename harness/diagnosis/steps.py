"""Hypotheses about single steps of a reference: the dimension they go along, and what else they are told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from harness.diagnosis.altered import NOT_ALTERED, Altered, arguments_of, called_with, reduced
from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import LeftOut, OtherDimension, OtherStep, Swapped
from harness.oracle.maxima import MAXIMA

Change = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
"""Gives another result of an operator (func, args, kwargs), or NOT_ALTERED."""


class _Changed(Altered):
    """Operators of some names give what `change` does."""

    def __init__(self, names: frozenset[str], change: Change) -> None:
        super().__init__()
        self._names = names
        self._change = change

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._change(func, args, kwargs) if name in self._names else NOT_ALTERED


# ---------------------------------------------------------------------- along which dimension

# Operators that go along one or several dimensions.
_ALONG = frozenset({
    "sum", "mean", "var", "var_mean", "std", "std_mean", "prod", "logsumexp", "linalg_vector_norm", "amax", "amin",
    "max", "min", "argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "sort", "topk", "flip",
})  # fmt: skip

Dimensions = tuple[int, ...]


def _along(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, Dimensions] | None:
    """How many dimensions a tensor has, and along which an operator goes; None where it goes along none."""
    if func.overloadpacket.__name__ not in _ALONG or "dim" not in (a.name for a in func._schema.arguments):
        return None
    return args[0].dim(), tuple(reduced(func, args, kwargs)[0])


class _Dimensions(Altered):
    """Remembers what `_along` gives for operators, in the order met."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[int, Dimensions], None] = {}

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if along := _along(func, args, kwargs):
            self.seen[along] = None
        return NOT_ALTERED


class _AlongOthers(Altered):
    """Operators that go along the dimensions `expected` of `of` go along those `used`."""

    def __init__(self, of: int, expected: Dimensions, used: Dimensions) -> None:
        super().__init__()
        self._altered = of, expected
        self._used = used

    def alter(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if _along(func, args, kwargs) != self._altered:
            return NOT_ALTERED
        one = len(self._used) == 1 and not isinstance(arguments_of(func, args, kwargs)["dim"], list | tuple)
        return called_with(func, args, kwargs, dim=self._used[0] if one else list(self._used))


def other_dimension(evidence: Evidence) -> Iterator[Candidate]:
    """Sums, means, maxima or the like (softmax, a norm) are over another dimension, or over more or fewer of them."""
    looking = _Dimensions()
    evidence.outputs(mode=looking)
    for of, expected in looking.seen:
        tails = [tuple(range(first, of)) for first in range(of)]
        for used in dict.fromkeys([*tails, *((d,) for d in range(of))]):
            if used != expected and (outputs := _run(evidence, _AlongOthers(of, expected, used))):
                yield Candidate(OtherDimension(used=list(used), expected=list(expected), of=of), outputs)


# ---------------------------------------------------------------------- what else they are told


def _opposite(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The largest in place of the smallest, and the other way round. Where they stand comes second, or alone."""
    if args[0].dtype is torch.bool:
        return NOT_ALTERED
    result = func(-args[0], *args[1:], **kwargs)
    if isinstance(result, tuple | list):
        return (-result[0], *result[1:])
    return result if func.overloadpacket.__name__.startswith("arg") else -result


def _backwards(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    dim = arguments_of(func, args, kwargs)["dim"]
    return tuple(t.flip(dim) for t in func(*args, **kwargs))


def _mean_as_sum(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    dims, _, keeps = reduced(func, args, kwargs)
    return args[0].sum(dims, keepdim=keeps)


def _sum_as_mean(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    dims, _, keeps = reduced(func, args, kwargs)
    return args[0].mean(dims, keepdim=keeps) if args[0].is_floating_point() else NOT_ALTERED


# What a loss is told to do with its terms: torch.nn._reduction, MEAN and SUM.
_REDUCTIONS = {1: 2, 2: 1}


def _loss(expected: int) -> Change:
    """A loss that takes a mean takes the sum, or the other way round."""

    def change(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if arguments_of(func, args, kwargs)["reduction"] != expected:
            return NOT_ALTERED
        return called_with(func, args, kwargs, reduction=_REDUCTIONS[expected])

    return change


def _mask_inverted(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    at = 1 if func.overloadpacket.__name__.startswith("masked_fill") else 0
    if not isinstance(args[at], torch.Tensor) or args[at].dtype is not torch.bool:
        return NOT_ALTERED
    return func(*args[:at], ~args[at], *args[at + 1 :], **kwargs)


def _diagonal(by: int) -> Change:
    def change(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return called_with(func, args, kwargs, diagonal=arguments_of(func, args, kwargs)["diagonal"] + by)

    return change


def _exclusive(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs) - args[0]


def _from_the_end(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    dim = args[1]
    return func(args[0].flip(dim), *args[1:], **kwargs).flip(dim)


def _halves_swapped(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The two halves of a tensor, as the value and the gate of a GLU, in each other's place."""
    name, x, named = func.overloadpacket.__name__, args[0], arguments_of(func, args, kwargs)
    if name == "glu":
        return func(torch.cat(x.chunk(2, named["dim"])[::-1], named["dim"]), *args[1:], **kwargs)
    if name == "slice":
        size = x.shape[named["dim"]]
        first, second = (0, size // 2), (size // 2, size)
        asked = named["start"] or 0, min(size if named["end"] is None else named["end"], size)
        if size % 2 or asked not in (first, second):
            return NOT_ALTERED
        start, end = second if asked == first else first
        return called_with(func, args, kwargs, start=start, end=end)
    parts = func(*args, **kwargs)
    return tuple(parts)[::-1] if len(parts) == 2 and parts[0].shape == parts[1].shape else NOT_ALTERED


def _flipped(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, kernel, *others = args
    return func(x, kernel.flip(list(range(2, kernel.dim()))), *others, **kwargs)


_SMALLEST = frozenset({"min", "amin", "argmin", "cummin"})
_SORTED = frozenset({"topk", "sort"})
_LOSSES = frozenset({
    "nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss_forward",
})  # fmt: skip
_MASKS = frozenset({"masked_fill", "masked_fill_", "where"})
_TRIANGLES = frozenset({"tril", "triu", "tril_", "triu_"})

# By what stands in a step's place: the steps that it may stand in the place of, and how.
_CHANGES: Sequence[tuple[str, frozenset[str], Change]] = (
    ("smallest", MAXIMA - _SORTED, _opposite),
    ("largest", _SMALLEST, _opposite),
    ("other_end", _SORTED, _opposite),
    ("backwards", _SORTED, _backwards),
    ("sum", frozenset({"mean"}), _mean_as_sum),
    ("mean", frozenset({"sum"}), _sum_as_mean),
    ("sum", _LOSSES, _loss(1)),
    ("mean", _LOSSES, _loss(2)),
    ("mask_inverted", _MASKS, _mask_inverted),
    ("diagonal_above", _TRIANGLES, _diagonal(1)),
    ("diagonal_below", _TRIANGLES, _diagonal(-1)),
    ("exclusive", frozenset({"cumsum"}), _exclusive),
    ("from_the_end", frozenset({"cumsum", "cumprod", "cummax", "cummin"}), _from_the_end),
    ("halves_swapped", frozenset({"glu", "split", "split_with_sizes", "unbind", "slice"}), _halves_swapped),
    ("kernel_flipped", frozenset({"convolution"}), _flipped),
)


def other_step(evidence: Evidence) -> Iterator[Candidate]:
    """A step is another one: a sum for a mean, the smallest for the largest, a mask inverted, a kernel flipped, …"""
    for used, names, change in _CHANGES:
        if outputs := _changed(evidence, names, change):
            yield Candidate(OtherStep(used=used), outputs)


# ---------------------------------------------------------------------- which part is which

# What takes a tensor apart.
_SPLITS = frozenset({"split", "split_with_sizes", "unsafe_split", "unsafe_chunk", "unbind", "slice", "glu"})

# A parameter may hold the weights of so many gates, one below the other: a GRU's three, an LSTM's four, a GLU's two.
_GATES = (2, 3, 4)


def gates_swapped(evidence: Evidence) -> Iterator[Candidate]:
    """Two of the 2, 3 or 4 equal parts that parameters have, as the gates of a GRU, stand in each other's place."""
    if not evidence.steps & _SPLITS:
        return
    sizes = {value.shape[0] for value in evidence.parameters.values() if value.dim()}
    for size, count in itertools.product(sorted(sizes), _GATES):
        if size % count or size == count:
            continue
        of_size = {n: p for n, p in evidence.parameters.items() if p.dim() and p.shape[0] == size}
        for i, j in itertools.combinations(range(count), 2):
            swapped = {name: _parts_swapped(value, count, i, j) for name, value in of_size.items()}
            names = " and of ".join(f"'{name}'" for name in of_size)
            one, other = f"part {i + 1} of {count}", f"part {j + 1} of {names}"
            yield Candidate(Swapped(one=one, other=other), evidence.outputs(parameters=swapped))


def _parts_swapped(value: torch.Tensor, count: int, i: int, j: int) -> torch.Tensor:
    parts = list(value.chunk(count))
    parts[i], parts[j] = parts[j], parts[i]
    return torch.cat(parts)


# ---------------------------------------------------------------------- what is left out


def _first(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return args[0].clone()


def _first_of_product(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return args[0].clone() if isinstance(args[1], int | float) else NOT_ALTERED


def _without_log(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs).exp()


# Functions of each element that people forget, beside activations.
_FUNCTIONS = (
    "exp", "log", "log1p", "log2", "expm1", "sqrt", "rsqrt", "reciprocal", "abs", "neg", "pow", "erf", "sin", "cos",
    "clamp", "clamp_min", "clamp_max",
)  # fmt: skip

# By what is left out: the steps that it is, or is a part of, and what stands in their place.
_WITHOUT: Sequence[tuple[str, frozenset[str], Change]] = (
    *((name, frozenset({name, f"{name}_"}), _first) for name in _FUNCTIONS),
    ("log", frozenset({"logsumexp"}), _without_log),
    ("a mask", frozenset({"masked_fill", "masked_fill_"}), _first),
    ("a mask (tril, triu, a causal one)", _TRIANGLES, _first),
    ("a constant factor", frozenset({"mul", "mul_", "div", "div_"}), _first_of_product),
)


def step_left_out(evidence: Evidence) -> Iterator[Candidate]:
    """A function of each element (exp, log, sqrt, clamp, …), a mask or a constant factor is left out."""
    for what, names, change in _WITHOUT:
        if outputs := _changed(evidence, names, change):
            yield Candidate(LeftOut(what=what), outputs)


def _changed(evidence: Evidence, names: frozenset[str], change: Change) -> Sequence[torch.Tensor]:
    """What the reference gives with some of its steps changed; nothing where it has none of them."""
    present = names & evidence.steps
    mode = _Changed(present, change)
    outputs = _run(evidence, mode) if present else ()
    return outputs if mode.used else ()


def _run(evidence: Evidence, mode: Altered) -> Sequence[torch.Tensor]:
    """What the reference gives so; nothing where it cannot be run so, as shapes no longer match."""
    try:
        return evidence.outputs(mode=mode)
    except (RuntimeError, IndexError, TypeError):
        return ()
