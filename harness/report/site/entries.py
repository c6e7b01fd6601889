"""Entries of boards as rows of a table: ranks are the store's."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.figures import with_interval
from harness.report.site.gather import Gathered, Subject, subject_of
from harness.report.site.table import Cell, Heading, Row, Table, without_empty
from harness.report.site.texts import day
from harness.store import Board, Entry, Standing
from harness.store.board import Mean

# Rows of one page: it stays below 300 kB.
ROWS_OF_A_PAGE = 350

# Digits of a SHA-256 that name a source, as the terminal shows it.
SHOWN_DIGITS = 10

_KINDS = {Standing.RANKED: "good", Standing.REJECTED: "bad", Standing.WITHDRAWN: "bad"}

Placed = tuple[Board, Entry]


def board_table(label: str, rows: Sequence[Row], name: str) -> Table:
    """Rows of `entry_row`."""
    headings = [
        Heading("problem", "left"), Heading("device", "left"), Heading("dtype", "left"), Heading("#"),
        Heading("submission", "left"), Heading("standing", "left"), Heading("over eager [95%]"),
        Heading("over the fastest"), Heading("captured, over eager"), Heading("captured, over the fastest"),
        Heading("runs"), Heading("latest", "left"), Heading("source", "left"),
    ]  # fmt: skip
    return without_empty(Table(label, headings, rows, sortable=True, name=name, names_rows=4), keep=6)


def entry_row(board: Board, entry: Entry, dtypes: Sequence[str], base: str, problem_href: str) -> Row:
    """An entry; `base` leads from the page to the site's root."""
    subject = subject_of(board, entry)
    device = "emulator" if board.device == "emulator" else f"{board.device}, {board.model}"
    cells = [
        Cell(board.problem, href=problem_href), Cell(device), Cell(", ".join(dtypes)),
        Cell("–" if entry.rank is None else str(entry.rank), value=entry.rank),
        Cell(entry.submission, href=f"{base}submissions/{subject.key}.html"),
        Cell(entry.standing.value, kind=_KINDS.get(entry.standing, "unsure")),
        _mean(entry.over_eager), _mean(entry.over_fastest), _mean(entry.captured_over_eager),
        _mean(entry.captured_over_fastest), Cell(str(entry.evaluations), value=entry.evaluations),
        Cell(day(entry.date)), Cell(entry.source_sha256[:SHOWN_DIGITS], kind="digest"),
    ]  # fmt: skip
    data = {
        "problem": board.problem,
        "device": board.device,
        "dtype": " ".join(dtypes),
        "standing": entry.standing.value,
    }
    return Row(cells, data)


def shown_subjects(gathered: Gathered) -> set[Subject]:
    """Those with an entry on a board that is shown."""
    return {subject_of(board, entry) for board in gathered.latest for entry in board.entries}


def shared_out(boards: Sequence[Board], room: int = ROWS_OF_A_PAGE) -> list[Placed]:
    """The first entries of each board, as many of each as there is room for, one at the least."""
    most = max((board.count for board in boards), default=0)
    counts = range(most, 1, -1)
    each = next((n for n in counts if sum(min(n, board.count) for board in boards) <= room), 1)
    return [(board, entry) for board in boards for entry in board.entries[:each]]


def _mean(mean: Mean | None) -> Cell:
    if mean is None:
        return Cell("–")
    return Cell(with_interval(mean.value, mean.interval) if mean.interval else f"{mean.value:.2f}×", value=mean.value)
