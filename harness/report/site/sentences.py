"""Verdicts and standings as sentences."""

from __future__ import annotations

from harness.report.site.gather import Placed
from harness.report.site.texts import count_of, shortened
from harness.report.verdicts import accepted_summary
from harness.store import Standing
from harness.verdict import Accepted, Evaluation, Rejected

# Of a message's first line, in a sentence.
LONGEST_CHARACTERS = 400


def verdict(evaluation: Evaluation) -> str:
    """What became of it, in one sentence."""
    if isinstance(evaluation, Accepted):
        return f"Accepted: {accepted_summary(evaluation)}."
    first = shortened(evaluation.message.partition("\n")[0], LONGEST_CHARACTERS).rstrip(".")
    word = "Rejected" if isinstance(evaluation, Rejected) else "Not judged"
    return f"{word}, {evaluation.reason}: {first}."


def standing(found: Placed | None, evaluation: Evaluation) -> str:
    """Its place on its board, or why it has none, unless the verdict says that."""
    if found is None or (found.entry.standing is Standing.REJECTED and isinstance(evaluation, Rejected)):
        return ""
    entry, others = found.entry, found.board.entries
    if entry.standing is Standing.WITHDRAWN:
        return f"Withdrawn: {shortened(entry.withdrawn, 400)}"
    if entry.rank is None:
        return f"{entry.standing.value.capitalize()}: {entry.standing.meaning}"
    ranked = sum(other.rank is not None for other in others)
    tied = sum(other.rank == entry.rank for other in others) - 1
    shared = f", shared with {count_of(tied, 'other')}" if tied else ""
    return f"Rank {entry.rank} of {ranked}{shared}."
