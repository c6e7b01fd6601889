"""Evaluations as pages have room for: results come from files that anybody may have written, with names of any length
and any number of baselines. Nothing changes in what eval.py writes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from harness.report.site.texts import named, shortened
from harness.verdict import Case, CasePassed, CaseTiming, Evaluation

MOST_BASELINES = 10
_SHAPE, _WORD = 120, 40

_Case = TypeVar("_Case", bound=Case)


def fitted(evaluation: Evaluation) -> Evaluation:
    """The evaluation with shorter names and fewer baselines."""
    return msgspec.structs.replace(
        evaluation,
        submission=named(evaluation.submission),
        problem=named(evaluation.problem),
        device=shortened(evaluation.device, _WORD),
        cases=[_case(case) for case in evaluation.cases],
        finding=_named(evaluation.finding) if evaluation.finding else None,
    )


def _case(case: Case) -> Case:
    found = _named(case)
    if not isinstance(found, CasePassed) or found.timing is None:
        return found
    parts = {shortened(name, _WORD): _timing(timing) for name, timing in list(found.parts.items())[:4]}
    return msgspec.structs.replace(found, timing=_timing(found.timing), parts=parts)


def _named(case: _Case) -> _Case:
    return msgspec.structs.replace(
        case, name=named(case.name), shape=shortened(case.shape, _SHAPE), dtype=shortened(case.dtype, _WORD)
    )


def _timing(timing: CaseTiming) -> CaseTiming:
    baselines = {shortened(name, _WORD): found for name, found in list(timing.baselines.items())[:MOST_BASELINES]}
    captured = _timing(timing.captured) if timing.captured else None
    return msgspec.structs.replace(timing, baselines=baselines, captured=captured)
