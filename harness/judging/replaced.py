"""What a submission is there to replace, where the problem does not say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from harness.norms import NORMALISATIONS
from harness.oracle.faults import told
from harness.oracle.operators import Operators
from harness.problem import Case, Problem
from harness.surroundings import SettingChanged, kept

# Of a case with more elements the shapes alone are computed.
MOST_ELEMENTS = 1 << 20

# One normalisation has several operators, by backend and age.
_FAMILIES = ("layer_norm", "group_norm", "batch_norm", "rms_norm", "weight_norm", "renorm")

_aten = torch.ops.aten
# What moves values and computes none, beside views and what is done to each element by itself.
_MOVES = {_aten._to_copy, _aten.clone, _aten.copy_, _aten.empty, _aten.zeros, _aten.ones, _aten.full, _aten.cat}


def may_run(problem: Problem) -> list[str]:
    """Normalisations, by ATen names, that a submission may call although the problem does not allow them: those of
    a reference that is much more than a normalisation. A submission may have replaced another part of it. None where
    the problem names an operator, or where the reference cannot be run. Raises ReferenceFault where it changes its
    caller's settings: this is its first call, behind which they would already be as it wants them."""
    case = min(problem.cases, key=lambda case: sum(map(math.prod, case.shapes)))
    with told(problem.path, case.name):
        ran = _operators_of(problem, case)
    if problem.allowed_ops or problem.forbidden_ops:
        return []
    return [name for name in ran if name in NORMALISATIONS] if any(_is_more(func) for func in ran.values()) else []


def with_relatives(names: Iterable[str]) -> set[str]:
    """The same normalisations by all of their names."""
    families = {family for family in _FAMILIES for name in names if family in name}
    return {name for name in NORMALISATIONS if any(family in name for family in families)}


class _Seen(Operators):
    """Keeps each operator that runs, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: dict[str, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran[func.overloadpacket.__name__] = func
        return func(*args, **(kwargs or {}))


def _operators_of(problem: Problem, case: Case) -> dict[str, Any]:
    """What the reference runs on a case. Raises SettingChanged."""
    small = sum(map(math.prod, case.shapes)) <= MOST_ELEMENTS
    seen = _Seen()
    try:
        model = problem.build_model(case, 0, torch.device("cpu"))
        where = torch.device("cpu" if small else "meta")
        dtypes = case.dtypes or [case.dtype] * len(case.shapes)
        inputs = [torch.ones(shape, dtype=d, device=where) for shape, d in zip(case.shapes, dtypes, strict=True)]
        with torch.no_grad(), seen, kept(model):
            model.to(where)(*inputs)
    except SettingChanged:
        raise
    except Exception:  # what cannot be run is said when the case is drawn
        return {}
    return seen.ran


def _is_more(func: Any) -> bool:
    """Whether an operator is neither a normalisation nor next to nothing beside one."""
    views = any(returned.alias_info for returned in func._schema.returns)
    packet = func.overloadpacket
    return not (views or torch.Tag.pointwise in func.tags or packet in _MOVES or packet.__name__ in NORMALISATIONS)
