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
    TOO_SLOW = 4, "correct, and not shown to reach --min-speedup"
    NOTHING = 5, "nothing to evaluate"
    CLAIM = 6, "a bundle's claim does not hold"


def of_error(error: UsageError | HarnessError) -> Exit:
    """The exit code of an error that ends a run."""
    return Exit.USAGE if isinstance(error, UsageError) else Exit.HARNESS


def of_results(evaluations: Sequence[Evaluation], min_speedup: float | None) -> Exit:
    """The exit code of a run that came to its end: the worst that happened."""
    if any(isinstance(evaluation, Rejected) for evaluation in evaluations):
        return Exit.REJECTED
    if any(isinstance(evaluation, Errored) for evaluation in evaluations):
        return Exit.HARNESS
    if min_speedup is None:
        return Exit.ACCEPTED
    correct = [evaluation for evaluation in evaluations if isinstance(evaluation, Accepted)]
    if any(evaluation.geomean_speedup is None for evaluation in correct):
        return Exit.HARNESS
    return Exit.TOO_SLOW if any(_too_slow(evaluation, min_speedup) for evaluation in correct) else Exit.ACCEPTED


def why_not_fast(evaluations: Sequence[Evaluation], min_speedup: float | None) -> list[str]:
    """A sentence for each correct submission that was not shown to be `min_speedup` times as fast as eager."""
    if min_speedup is None:
        return []
    correct = [evaluation for evaluation in evaluations if isinstance(evaluation, Accepted)]
    return [why for evaluation in correct if (why := _unknown(evaluation) or _too_slow(evaluation, min_speedup))]


def _unknown(evaluation: Accepted) -> str:
    if evaluation.geomean_speedup is not None:
        return ""
    why = evaluation.not_timed or "eager was not timed on every timed case, as the notes say"
    return f"{evaluation.submission} is correct, and nothing is said of its speedup: {why}."


def _too_slow(evaluation: Accepted, asked: float) -> str:
    """A sentence, or none where it is not so. The whole interval decides: a point within it may be luck."""
    speedup = evaluation.geomean_speedup
    if speedup is None:
        return ""
    low, high = evaluation.geomean_interval or (speedup, speedup)
    if low >= asked:
        return ""
    found = f"{evaluation.submission} is correct, and at {speedup:.2f}× [{low:.2f}, {high:.2f}]"
    if high < asked:
        return f"{found} below the {asked:g}× asked for."
    return f"{found} not shown to reach the {asked:g}× asked for: its interval reaches below that."
