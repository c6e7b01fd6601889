"""The archive: every verdict that is kept, without what was measured, so that a hundred thousand are read at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.store.database import Store


@dataclass(frozen=True)
class Verdict:
    """What one evaluation said, when, and by which judge."""

    submission: str
    source_sha256: str
    problem: str
    problem_sha256: str
    device: str
    judge: str
    """Its version; empty where that is not known."""
    date: str
    """ISO 8601, in UTC."""
    status: str
    reason: str
    """Of a rejection or an error; else empty."""
    is_withdrawn: bool

    @property
    def says_something(self) -> bool:
        """Whether it is about the submission: an error is not."""
        return self.status != "error"


def verdicts(store: Store) -> list[Verdict]:
    """All, oldest first."""
    found = store.select(
        "SELECT submission, evaluation.source_sha256, board.problem, problem_sha256, device, judge, evaluation.date, "
        "status, evaluation.reason, withdrawal.reason IS NOT NULL AS withdrawn "
        "FROM evaluation JOIN board ON board.id = evaluation.board "
        "LEFT JOIN withdrawal ON withdrawal.source_sha256 = evaluation.source_sha256 "
        "AND withdrawal.problem = board.problem ORDER BY evaluation.date, evaluation.id"
    )
    return [
        Verdict(
            submission=row["submission"],
            source_sha256=row["source_sha256"],
            problem=row["problem"],
            problem_sha256=row["problem_sha256"],
            device=row["device"],
            judge=row["judge"],
            date=row["date"],
            status=row["status"],
            reason=row["reason"] or "",
            is_withdrawn=bool(row["withdrawn"]),
        )
        for row in found
    ]


def first_dates(found: Sequence[Verdict]) -> dict[str, str]:
    """When each judge, by its version, gave its first verdict; the earliest judge first."""
    dates: dict[str, str] = {}
    for verdict in sorted(found, key=lambda verdict: verdict.date):
        dates.setdefault(verdict.judge, verdict.date)
    return dates
