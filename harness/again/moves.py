"""Which verdicts moved when sources were judged anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.again.stored import Chosen
from harness.store.archive import Verdict
from harness.verdict import Evaluation


class Turn(StrEnum):
    """How a verdict moved."""

    WORSE = "accepted → rejected"
    BETTER = "rejected → accepted"
    OTHER_REASON = "rejected for another reason"
    UNKNOWN = "could not be judged"
    SAME = "as before"
    FIRST = "first verdict"


@dataclass(frozen=True)
class Move:
    """What was said of a source before, and what is said now."""

    before: Verdict
    now: Evaluation

    @property
    def turn(self) -> Turn:
        before, now = self.before.status, str(self.now.__struct_config__.tag)
        if now == "error":
            return Turn.UNKNOWN
        if not self.before.says_something:
            return Turn.FIRST
        if before != now:
            return Turn.WORSE if now == "rejected" else Turn.BETTER
        return Turn.SAME if self.before.reason == (self.now.reason or "") else Turn.OTHER_REASON


def moves(chosen: Iterable[Chosen], evaluations: Sequence[Evaluation]) -> list[Move]:
    """In the order of the evaluations; sources that were not judged have none."""
    before = {one.key: one.before for one in chosen}
    return [Move(before[(e.problem, e.source_sha256)], e) for e in evaluations]
