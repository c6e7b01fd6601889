"""In which dtype a reference has each operator's results: what it rounds to 16 bits on its way, and what not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from harness.oracle.operators import Operators

# By operator, for each of its calls in turn, the dtypes of the tensors that it gave.
ResultDtypes = Mapping[Any, Sequence[Sequence[torch.dtype]]]

# It runs as other operators where sums are looked at, so that calls would be counted wrongly.
ATTENTION = "scaled_dot_product"

_CAST = torch.ops.aten._to_copy.default
_PASSING_ON = (torch.ops.aten.copy_.default, torch.ops.aten.detach.default)


class Recorder(Operators):
    """Notes what operators give as they run within it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Any, list[list[torch.dtype]]] = defaultdict(list)
        self.rounds_between = False
        """Whether what was cast to a coarser dtype was used again: nothing in float64 shows where that rounds."""
        self._rounded: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        results = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.seen[func].append([t.dtype for t in results])
        if func is _CAST and eps_of(results[0].dtype) > eps_of(given[0].dtype):
            self._rounded[results[0].untyped_storage().data_ptr()] = results[0]  # held, or others would lie there
        elif self._rounded and func not in _PASSING_ON:
            self.rounds_between |= any(t.untyped_storage().data_ptr() in self._rounded for t in given)
        return result


def eps_of(dtype: torch.dtype) -> float:
    """Its machine epsilon; 0 for integers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def common(own: ResultDtypes, in_float64: ResultDtypes) -> ResultDtypes:
    """Those of `own` that belong to the same calls in a run in float64: of operators that both called as often. Casts
    are not among them, since nothing is cast to what it is."""
    if any(ATTENTION in str(func) for func in own):
        return {}
    return {func: calls for func, calls in own.items() if len(calls) == len(in_float64.get(func, ()))}


def coarsest(own: ResultDtypes, than: float) -> torch.dtype | None:
    """The floating dtype with the largest machine epsilon, if that is larger `than` this."""
    dtypes = {dtype for calls in own.values() for call in calls for dtype in call}
    return max((dtype for dtype in dtypes if eps_of(dtype) > than), key=eps_of, default=None)


class Calls:
    """Which call of its operator each one is, as a reference runs once."""

    def __init__(self, dtypes: ResultDtypes) -> None:
        self._dtypes = dtypes
        self._count: Counter[Any] = Counter()

    def next(self, func: Any) -> Sequence[torch.dtype] | None:
        """The dtypes of what this call of `func` gives in the reference's own run; None where that is not known."""
        number = self._count[func]
        self._count[func] += 1
        calls = self._dtypes.get(func, ())
        return calls[number] if number < len(calls) else None
