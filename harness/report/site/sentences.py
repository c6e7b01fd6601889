"""Verdicts and standings as sentences."""

from __future__ import annotations

from harness.report.figures import over_eager, over_fastest
from harness.report.site.gather import Standing
from harness.report.site.texts import count_of, shortened
from harness.store import Standing as Why
from harness.verdict import Accepted, CaseFailed, Evaluation, Rejected


def verdict(evaluation: Evaluation) -> str:
    """What became of it, in one sentence."""
    cases = count_of(len(evaluation.cases), "case")
    if isinstance(evaluation, Accepted):
        return f"Accepted: {cases} correct{_speed(evaluation)}."
    first = shortened(evaluation.message.partition("\n")[0], 400).rstrip(".")
    word = "Rejected" if isinstance(evaluation, Rejected) else "Not judged"
    return f"{word}, {evaluation.reason}: {first}."


def _speed(evaluation: Accepted) -> str:
    if evaluation.geomean_speedup is None:
        return f"; not timed: {evaluation.not_timed}" if evaluation.not_timed else "; not timed"
    said = f"; over eager {over_eager(evaluation)}"
    if evaluation.geomean_speedup_over_best is not None:
        said += f", over the fastest of the baselines {over_fastest(evaluation)}"
    if evaluation.captured and evaluation.captured.geomean_speedup is not None:
        said += f"; captured, over eager {over_eager(evaluation.captured)}"
    noisy = "; too noisy to rank" if evaluation.is_too_noisy else ""
    return f"{said} (geometric means, 95% intervals){noisy}"


def standing(found: Standing | None) -> str:
    """Its place on its board, or why it has none."""
    if found is None:
        return ""
    entry, others = found.entry, found.board.entries
    if entry.standing is Why.WITHDRAWN:
        return f"Withdrawn: {shortened(entry.withdrawn, 400)}"
    if entry.rank is None:
        return f"{entry.standing.value.capitalize()}: {entry.standing.meaning}"
    ranked = sum(other.rank is not None for other in others)
    tied = sum(other.rank == entry.rank for other in others) - 1
    shared = f", shared with {count_of(tied, 'other')}" if tied else ""
    return f"Rank {entry.rank} of {ranked}{shared}."


def first_failure(evaluation: Evaluation) -> CaseFailed | None:
    """The failed case that the message is about: the first with its reason."""
    failed = [case for case in evaluation.cases if isinstance(case, CaseFailed)]
    return next((case for case in failed if case.reason == evaluation.reason), failed[0] if failed else None)
