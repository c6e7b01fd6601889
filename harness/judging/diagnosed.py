"""Calls that went wrong, kept until all verdicts are there, and then explained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec

from harness import diagnosis, verdict
from harness.diagnosis import Evidence, OnWrong
from harness.explanations import Border, Cancelled, Explanation, FailingCases, Region, Rounded, Unexplained
from harness.judging.observe import Observation
from harness.judging.runner import Runner
from harness.problem import Case

# The first wrong call is kept, and one more: of so many elements that no two explanations fit alike, and of so few that
# many can be tried.
MOST_KEPT = 2
ENOUGH_ELEMENTS = 1 << 8
FEW_ELEMENTS = 1 << 18

# Results that take more are not kept: the device's memory is the submission's.
KEPT_BYTES = 256 << 20

# What is said only where a second call gives the same again.
_LOOSE = (Unexplained, Cancelled, Region, Border, Rounded)

# More than 16 bits.
WIDE_BYTES = 4

# What may differ from call to call is called so often again; each call gets so long at least.
MORE_CALLS = 2
CALL_S = 0.5


class Witness:
    """Keeps calls that went wrong. What it finds is added to verdicts that stand, and changes none."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Evidence]] = []

    def of(self, case: str) -> OnWrong:
        """To be told of what went wrong in a case."""
        return partial(self._keep, case)

    def _keep(self, case: str, evidence: Evidence) -> None:
        wanted = not self._kept or _is_telling(evidence)
        if len(self._kept) < MOST_KEPT and wanted and _nbytes(evidence) <= KEPT_BYTES:
            self._kept.append((case, evidence))

    def explained(self, runner: Runner, judged: Sequence[tuple[Case, verdict.Case]]) -> list[verdict.Case]:
        """The verdicts of `judged`, as the device ran the cases, with explanations. `runner` is asked for nothing
        afterwards: it may not live through a second call."""
        right = _right_in_wider(judged)
        share_s = diagnosis.LIMIT_S / max(len(self._kept), 1)
        found: dict[str, Explanation] = {}
        for case, evidence in sorted(self._kept, key=lambda kept: not _is_telling(kept[1])):
            if all(isinstance(explanation, Unexplained) for explanation in found.values()):
                ends_s = time.monotonic() + share_s
                found[case] = _explanation(replace(evidence, right_in_wider=right), runner, ends_s)
        return [_with(result, found) for _, result in judged]


def failing(judged: Sequence[tuple[Case, verdict.Case]]) -> FailingCases | None:
    """Which of the cases fail, as the device ran them; None for none."""
    return diagnosis.failing_cases(
        [case for case, result in judged if isinstance(result, verdict.CaseFailed)],
        [case for case, result in judged if isinstance(result, verdict.CasePassed)],
    )


def _is_telling(evidence: Evidence) -> bool:
    return ENOUGH_ELEMENTS <= evidence.elements <= FEW_ELEMENTS


def _nbytes(evidence: Evidence) -> int:
    return sum(t.nbytes for t in (*evidence.data.given, *evidence.got)) + sum(
        e.values.nbytes for e in evidence.expected
    )


def _right_in_wider(judged: Sequence[tuple[Case, verdict.Case]]) -> bool:
    """Whether there are cases of 32 or 64 bits, and all of them passed."""
    wider = [result for case, result in judged if case.dtype.itemsize >= WIDE_BYTES]
    return bool(wider) and all(isinstance(result, verdict.CasePassed) for result in wider)


def _explanation(evidence: Evidence, runner: Runner, ends_s: float) -> Explanation:
    explanation = diagnosis.explain(evidence, ends_s)
    if isinstance(explanation, _LOOSE) and not evidence.same_data and time.monotonic() < ends_s:
        again = diagnosis.explain(_called_again(evidence, runner, ends_s), ends_s, diagnosis.OF_CALLS)
        return explanation if isinstance(again, Unexplained) else again
    return explanation


def _called_again(evidence: Evidence, runner: Runner, ends_s: float) -> Evidence:
    """With what two more calls on the same data give, of a new model, so that random numbers may begin anew in the
    first; on the emulator threads take another order. The same evidence where there are no calls to be had."""
    if runner.worker.has_ended:
        return evidence
    runner.timeout_s = min(runner.timeout_s, max(CALL_S, ends_s - time.monotonic()))
    try:
        observation = Observation(runner, evidence.reference, evidence.data)
        observation.stage(evidence.reference.call, evidence.expected, train=evidence.reference.judged_in_training)
        seen = [observation.call("random", number, strides=False).tensors for number in range(MORE_CALLS)]
    except Exception:  # the verdict is there, and says enough of a submission that fails otherwise the second time
        return evidence
    return replace(evidence, same_data=seen)


def _with(case: verdict.Case, found: dict[str, Explanation]) -> verdict.Case:
    if isinstance(case, verdict.CaseFailed) and case.name in found:
        return msgspec.structs.replace(case, explanation=found[case.name])
    return case
