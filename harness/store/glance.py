"""Evaluations at a glance: what the columns say of each, without its content."""

from __future__ import annotations

from dataclasses import dataclass

from harness.store.board import Mean, mean_of_logs
from harness.store.database import Store
from harness.store.rows import BOARD


@dataclass(frozen=True)
class Glance:
    """One evaluation, without its cases."""

    digest: str
    board: tuple[str, ...]
    """What it is compared on: the values of `harness.store.rows.BOARD`."""
    problem: str
    device: str
    model: str
    """Of the device."""
    date: str
    """ISO 8601, in UTC."""
    submission: str
    source_sha256: str
    seed: str
    status: str
    reason: str
    judge: str
    over_eager: Mean | None


def glances(store: Store) -> list[Glance]:
    """Of all evaluations, oldest first."""
    found = store.select(
        "SELECT evaluation.*, "
        + ", ".join(f"board.{name} AS {name}" for name in BOARD)
        + " FROM evaluation JOIN board ON board.id = evaluation.board ORDER BY date, evaluation.id"
    )
    return [
        Glance(
            board=tuple(row[name] for name in BOARD),
            reason=row["reason"] or "",
            over_eager=mean_of_logs(row["log_speedup"], row["variance"]),
            **{name: row[name] for name in _AS_THEY_ARE},
        )
        for row in found
    ]


_AS_THEY_ARE = (
    "digest", "problem", "device", "model", "date", "submission", "source_sha256", "seed", "status", "judge",
)  # fmt: skip
