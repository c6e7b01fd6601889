"""Exit codes, and which one a run ends with."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from harness.errors import HarnessError, UsageError
from harness.verdict import Accepted, Errored, Evaluation, Rejected


class Exit(IntEnum):
    """What eval.py ends with; `meaning` is how its help says it."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    ACCEPTED = 0, "accepted"
    REJECTED = 1, "a submission rejected"
    USAGE = 2, "usage or a broken problem file"
    HARNESS = 3, "the harness or the device failed and nothing is said about the submission"
    TOO_SLOW = 4, "correct but below --min-speedup"
    NOTHING = 5, "nothing to evaluate"


def of_error(error: UsageError | HarnessError) -> Exit:
    """The exit code of an error that ends a run."""
    return Exit.USAGE if isinstance(error, UsageError) else Exit.HARNESS


def of_results(evaluations: Sequence[Evaluation], min_speedup: float | None) -> Exit:
    """The exit code of a run that came to its end: the worst that happened."""
    if any(isinstance(evaluation, Rejected) for evaluation in evaluations):
        return Exit.REJECTED
    if any(isinstance(evaluation, Errored) for evaluation in evaluations):
        return Exit.HARNESS
    return Exit.TOO_SLOW if why_too_slow(evaluations, min_speedup) else Exit.ACCEPTED


def why_too_slow(evaluations: Sequence[Evaluation], min_speedup: float | None) -> list[str]:
    """A sentence for each correct submission that was not shown to be `min_speedup` times as fast as eager."""
    if min_speedup is None:
        return []
    correct = [evaluation for evaluation in evaluations if isinstance(evaluation, Accepted)]
    return [why for evaluation in correct if (why := _too_slow(evaluation, min_speedup))]


def _too_slow(evaluation: Accepted, asked: float) -> str:
    speedup = evaluation.geomean_speedup
    if speedup is None:
        why = evaluation.not_timed or "eager was not timed on every timed case, as the notes say"
        return f"{evaluation.submission} is correct, and {asked:g}× cannot be shown: {why}."
    if speedup < asked:
        return f"{evaluation.submission} is correct, and at {speedup:.2f}× below the {asked:g}× asked for."
    return ""
