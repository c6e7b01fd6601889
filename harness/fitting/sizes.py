"""How many bytes a case's tensors take, found out without any of them: the reference runs on torch's meta device, where
tensors have shapes and no values."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from harness.oracle.operators import Operators
from harness.oracle.outputs import outputs_of
from harness.oracle.rounded_sums import is_sum
from harness.problem import Case, Problem

# Beside the result of a sum or a product, how many tensors of its size stand in memory while it is rounded. With
# 6,144 x 64 times 64 x 6,144 the judge held 18 outputs at its peak, and 13 where nothing of this counts.
ROUNDING_TENSORS = 4

_META = torch.device("meta")


@dataclass(frozen=True)
class Sizes:
    """Of one case, in bytes, in the case's dtypes; `exact` in float64, where integers stay as they are."""

    given: int
    """Inputs, and upstream gradients where there are any."""
    given_exact: int
    outputs: int
    """Gradients as well."""
    outputs_exact: int
    parameters: int
    parameters_exact: int
    working_exact: int
    """The most that stands in memory beside inputs and parameters while the reference runs in float64."""
    known: bool
    """Whether the reference could be run so; if not, outputs and what stands in memory are taken to be as large as the
    inputs."""


def like_inputs(case: Case) -> Sizes:
    """The sizes of a case whose outputs are as large as its inputs, and whose reference needs little beside them."""
    given = _inputs(case)
    own, exact = _bytes(given), _exact(given)
    return Sizes(own, exact, own, exact, 0, 0, exact, known=False)


def sizes(problem: Problem, case: Case) -> Sizes:
    """The sizes of `case` itself, whatever stands in for it. PyTorch loads its compiler for this: it takes seconds."""
    given = _inputs(case)
    element = max((t.dtype.itemsize for t in given if t.is_floating_point()), default=4)
    try:
        model, outputs, working = _run(problem, case, given)
    except Exception:  # values may decide what it does, and there are none
        return like_inputs(case)
    parameters = [*model.parameters(), *model.buffers()]
    elements = sum(t.numel() for t in outputs)
    own, exact, weights = _bytes(given), _exact(given), sum(t.numel() for t in parameters)
    upstream = 0
    if problem.gradients is not None:  # of each output one is given, and of each input and parameter one comes out
        upstream, working = elements, 2 * working
        elements += sum(t.numel() for t in given) + weights
    return Sizes(
        given=own + upstream * element,
        given_exact=exact + upstream * 8,
        outputs=elements * element,
        outputs_exact=elements * 8,
        parameters=weights * case.parameter_dtype.itemsize,
        parameters_exact=weights * 8,
        working_exact=working,
        known=True,
    )


def _inputs(case: Case) -> list[torch.Tensor]:
    """Without values."""
    dtypes = case.dtypes or (case.dtype,) * len(case.shapes)
    return [torch.empty(shape, dtype=dtype, device=_META) for shape, dtype in zip(case.shapes, dtypes, strict=True)]


def _run(problem: Problem, case: Case, given: list[torch.Tensor]) -> tuple[torch.nn.Module, list[torch.Tensor], int]:
    """The reference in float64, its outputs, and the most bytes that stood in memory as it ran."""
    init = problem.init_args(case, 0)
    with _META:
        model = problem.new_model(case, init).double()
    inputs = [t.double() if t.is_floating_point() else t for t in given]
    with torch.set_grad_enabled(problem.gradients is not None), _Live() as live:
        outputs = outputs_of(model(*inputs))
    return model, outputs, live.most_bytes


class _Live(Operators):
    """Counts the bytes of what operators return for as long as it lives."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0
        self._known: set[int] = set()
        self.most_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        returned = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        for tensor in returned:
            if tensor.untyped_storage()._cdata not in given:
                self._count(tensor.untyped_storage())
        rounded = ROUNDING_TENSORS * _bytes(returned) if is_sum(func) else 0
        self.most_bytes = max(self.most_bytes, self._bytes + rounded)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self._bytes += size
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._bytes -= size


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(math.prod(t.shape) * t.dtype.itemsize for t in tensors)


def _exact(tensors: Iterable[torch.Tensor]) -> int:
    return sum(math.prod(t.shape) * (8 if t.is_floating_point() else t.dtype.itemsize) for t in tensors)
