"""What the store says of entries: boards with their ranking, and an entry's history."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.store.database import Store
from harness.store.rows import BOARD, Z_95, Stored


class Standing(StrEnum):
    """Why an entry has a rank, or none."""

    RANKED = "ranked"
    PROVISIONAL = "provisional"
    DISAGREES = "disagrees"
    UNRANKED = "unranked"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"

    @property
    def meaning(self) -> str:
        """A sentence on it."""
        return _MEANINGS[self]


_MEANINGS = {
    Standing.RANKED: "Evaluations with two seeds agree.",
    Standing.PROVISIONAL: "One evaluation so far; a second one with fresh data ranks it.",
    Standing.DISAGREES: "Its evaluations differ by more than 5% and by more than their intervals explain.",
    Standing.UNRANKED: "Accepted. It was not timed, as on the emulator, or its times are too uncertain.",
    Standing.REJECTED: "This judge rejected it.",
    Standing.WITHDRAWN: "It was withdrawn.",
}


@dataclass(frozen=True)
class Mean:
    """A geometric mean of speedups, with its 95% interval where that is known."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Entry:
    """One source on a board, of all its evaluations there."""

    submission: str
    source_sha256: str
    date: str
    """Of the latest evaluation, ISO 8601."""
    evaluations: int
    standing: Standing
    rank: int | None
    withdrawn: str
    """Why, if it was."""
    over_eager: Mean | None
    over_fastest: Mean | None
    captured_over_eager: Mean | None
    captured_over_fastest: Mean | None


@dataclass(frozen=True)
class Board:
    """What is compared: nothing else is."""

    problem: str
    problem_sha256: str
    cases: str
    judge: str
    device: str
    model: str
    versions: str
    date: str
    """Of the latest evaluation on it."""
    entries: tuple[Entry, ...]
    """Ranked ones first, by rank, then the others by their speedup."""
    count: int
    """Of all entries, those that are left out included."""
    others: int
    """Boards of the same problem and device that are left out for this one."""


def boards(store: Store, problem: str | None = None, *, older: bool = False, limit: int = 1000) -> list[Board]:
    """The boards of a problem, or of all, with the first `limit` entries of each. Of boards that differ only in the
    problem's content, cases, judge or versions the one with the latest evaluation, unless `older` asks for all."""
    where, values = ("WHERE problem = ?", (problem,)) if problem is not None else ("", ())
    found = store.select(
        "SELECT board.*, max(date) AS date FROM board JOIN evaluation ON evaluation.board = board.id "
        f"{where} GROUP BY board.id ORDER BY problem, device, model, max(date) DESC",
        values,
    )
    latest: dict[tuple[str, str, str], sqlite3.Row] = {}
    for row in found:
        latest.setdefault(_place(row), row)
    alike = Counter(_place(row) for row in found)
    chosen = found if older else list(latest.values())
    entries: dict[int, list[sqlite3.Row]] = {row["id"]: [] for row in chosen}
    for row in store.select("SELECT * FROM ranking ORDER BY rank IS NULL, rank, log_speedup DESC, submission"):
        if row["board"] in entries:
            entries[row["board"]].append(row)
    return [
        Board(
            **{name: row[name] for name in (*BOARD, "date")},
            entries=tuple(_entry(entry) for entry in entries[row["id"]][:limit]),
            count=len(entries[row["id"]]),
            others=0 if older else alike[_place(row)] - 1,
        )
        for row in chosen
    ]


def _place(board: sqlite3.Row) -> tuple[str, str, str]:
    return board["problem"], board["device"], board["model"]


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        submission=row["submission"],
        source_sha256=row["source_sha256"],
        date=row["date"],
        evaluations=row["evaluations"],
        standing=Standing(row["standing"]),
        rank=row["rank"],
        withdrawn=row["withdrawn"] or "",
        over_eager=mean_of_logs(row["log_speedup"], row["variance"]),
        over_fastest=mean_of_logs(row["log_over_best"]),
        captured_over_eager=mean_of_logs(row["log_captured"]),
        captured_over_fastest=mean_of_logs(row["log_captured_over_best"]),
    )


def mean_of_logs(log: float | None, variance: float | None = None) -> Mean | None:
    """The mean whose logarithm is `log`, known with this variance."""
    if log is None:
        return None
    if variance is None:
        return Mean(math.exp(log))
    reach = Z_95 * math.sqrt(variance)
    return Mean(math.exp(log), (math.exp(log - reach), math.exp(log + reach)))


def history(store: Store, submission: str, problem: str | None = None) -> Sequence[Stored]:
    """All evaluations of a submission, by its name or by the beginning of its source's SHA-256, oldest first."""
    where, values = "(submission = ? OR source_sha256 LIKE ? || '%')", [submission, submission]
    if problem is not None:
        where, values = f"{where} AND problem = ?", [*values, problem]
    return list(store.stored(where, tuple(values)))
