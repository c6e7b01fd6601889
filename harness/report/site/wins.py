"""Which submissions win which cases of a board.

A submission wins a case when no other is faster there: by its speedup over eager on the case, which was measured in the
same rounds, and as on the board with the 95% interval of the difference of logarithms (harness/store/schema.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.cases import timed_of
from harness.report.site.known import Known, known_of_case
from harness.verdict import CasePassed, Evaluation


@dataclass(frozen=True)
class Won:
    """A case that was timed, and who wins it."""

    case: CasePassed
    """The fastest submission's."""
    winners: Sequence[str]
    """Keys of their pages, the fastest first."""
    timed: int
    """How many submissions have a time there."""


def wins(evaluations: Mapping[str, Evaluation]) -> list[Won]:
    """For each timed case, by keys of pages."""
    found: dict[str, list[tuple[Known, str, CasePassed]]] = {}
    for key, evaluation in evaluations.items():
        for case in timed_of(evaluation.cases):
            known = known_of_case(case.timing) if case.timing else None
            if known:
                found.setdefault(case.name, []).append((known, key, case))
    return [_won(sorted(times, key=lambda one: (-one[0].log, one[1]))) for times in found.values()]


def _won(times: Sequence[tuple[Known, str, CasePassed]]) -> Won:
    first, _, case = times[0]
    return Won(case, [key for known, key, _ in times if not known.differs(first)], len(times))
