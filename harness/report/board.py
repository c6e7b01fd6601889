"""Boards and histories for people."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from harness.errors import HarnessError, UsageError
from harness.report.figures import mean_of, over_eager, over_fastest
from harness.report.paragraphs import print_paragraph
from harness.report.tables import Column, print_columns
from harness.report.verdicts import STATUS_STYLE
from harness.store import Board, Entry, Standing, Stored, boards, open_store
from harness.store.pairs import SHOWN_DIGITS
from harness.verdict import Accepted, status_of

NOTHING = "–"

# Entries of a board that are shown unless more are asked for.
SHOWN = 40

_STYLE = {Standing.REJECTED: "red", Standing.WITHDRAWN: "red", Standing.RANKED: "green"}


def print_boards(console: Console, db: Path, of: Collection[tuple[str, str]]) -> None:
    """The boards of these problems and devices. Where the database cannot be read there are none: who wrote to it has
    said why."""
    if not db.exists():
        return
    with contextlib.suppress(HarnessError, UsageError), open_store(db) as store:
        for board in boards(store, limit=SHOWN):
            if (board.problem, board.device) in of:
                print_board(console, board)


def print_board(console: Console, board: Board) -> None:
    """A table of its entries, and a sentence on each standing but ranked that occurs."""
    title = f"{board.problem} · {board.device} · {board.model} · {board.versions}"
    console.print()
    print_columns(console, title, _columns(board.entries))
    print_paragraph(console, Text(), f"judge {board.judge or 'unknown'}, latest of {_day(board.date)}", "dim")
    if board.others:
        boards_are = "board is" if board.others == 1 else "boards are"
        others = (
            f"{board.others:,} more {boards_are} of other cases, judges or versions; leaderboard --older shows them"
        )
        print_paragraph(console, Text(), others, "dim")
    if board.count > len(board.entries):
        console.print(f"{board.count - len(board.entries):,} more; --all shows them", soft_wrap=True)
    for standing in sorted({entry.standing for entry in board.entries} - {Standing.RANKED}):
        print_paragraph(console, Text(), f"{standing}: {standing.meaning}", "dim")
    for entry in board.entries:
        if entry.withdrawn:
            print_paragraph(console, Text(), f"{entry.submission} was withdrawn: {entry.withdrawn}")


def _columns(entries: Sequence[Entry]) -> list[Column]:
    cells = [
        ("#", "left", [Text(NOTHING if entry.rank is None else str(entry.rank)) for entry in entries]),
        ("submission", "left", [Text(entry.submission) for entry in entries]),
        ("standing", "left", [Text(entry.standing, style=_STYLE.get(entry.standing, "")) for entry in entries]),
        ("over eager [95%]", "right", [Text(mean_of(entry.over_eager)) for entry in entries]),
        ("over the fastest", "right", [Text(mean_of(entry.over_fastest)) for entry in entries]),
        ("captured, over eager", "right", [Text(mean_of(entry.captured_over_eager)) for entry in entries]),
        ("captured, over the fastest", "right", [Text(mean_of(entry.captured_over_fastest)) for entry in entries]),
        ("runs", "right", [Text(str(entry.evaluations)) for entry in entries]),
        ("latest", "left", [Text(_day(entry.date)) for entry in entries]),
        ("source", "left", [Text(entry.source_sha256[:SHOWN_DIGITS]) for entry in entries]),
    ]
    return [
        Column(heading, column, "left" if justify == "left" else "right")
        for heading, justify, column in cells
        if any(cell.plain != NOTHING for cell in column)
    ]


def _day(date: str) -> str:
    return date[:10] or "unknown"


def print_history(console: Console, evaluations: Sequence[Stored]) -> None:
    """One line for each, oldest first, and which of them were the best so far of their problem and device."""
    best: dict[tuple[str, str], float] = {}
    marks = []
    for stored in evaluations:
        evaluation = stored.evaluation
        key, speedup = (evaluation.problem, evaluation.device), evaluation.geomean_speedup or 0.0
        marks.append("best so far" if speedup > best.get(key, 0.0) else "")
        best[key] = max(speedup, best.get(key, 0.0))
    found = [stored.evaluation for stored in evaluations]
    statuses = [status_of(evaluation) for evaluation in found]
    of_accepted = [
        (over_eager(e), over_fastest(e)) if isinstance(e, Accepted) else (str(e.reason or ""), "") for e in found
    ]
    columns = [
        Column("date", [Text(stored.date[:16].replace("T", " ")) for stored in evaluations], "left"),
        Column("problem", [Text(e.problem) for e in found], "left"),
        Column("device", [Text(e.device) for e in found], "left"),
        Column("verdict", [Text(status, style=STATUS_STYLE[status]) for status in statuses], "left"),
        Column("over eager [95%]", [Text(eager) for eager, _ in of_accepted]),
        Column("over the fastest", [Text(fastest) for _, fastest in of_accepted]),
        Column("", [Text(mark, style="green") for mark in marks], "left"),
        Column("judge", [Text(str(stored.environment.get("judge") or "unknown")) for stored in evaluations], "left"),
        Column("source", [Text(e.source_sha256[:SHOWN_DIGITS]) for e in found], "left"),
        Column("evaluation", [Text(stored.digest[:SHOWN_DIGITS]) for stored in evaluations], "left"),
    ]
    print_columns(console, "", columns)
