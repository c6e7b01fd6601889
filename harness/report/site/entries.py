"""Entries of boards as rows of a table: ranks are the store's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.report.figures import mean_of
from harness.report.site.gather import subject_of
from harness.report.site.table import Cell, Heading, Row, Table, without_empty
from harness.report.site.texts import day, named, shortened
from harness.store import Board, Entry, Standing
from harness.store.board import Mean
from harness.store.pairs import SHOWN_DIGITS

# Rows of one page: it stays below 300 kB.
ROWS_OF_A_PAGE = 350

_KINDS = {
    Standing.RANKED: "good",
    Standing.PROVISIONAL: "faint",
    Standing.UNRANKED: "faint",
    Standing.REJECTED: "bad",
    Standing.WITHDRAWN: "bad",
}

# Dtypes of a row that are shown, and how much of each.
_DTYPES, _DTYPE = 8, 16


def board_table(label: str, rows: Sequence[Row], name: str = "", without: Sequence[str] = ()) -> Table:
    """Rows of `entry_row`, `without` some of the columns."""
    headings = [
        Heading("#"), Heading("submission", "left"), Heading("problem", "left"), Heading("over eager [95%]"),
        Heading("over the fastest"), Heading("standing", "left"), Heading("device", "left"), Heading("dtype", "left"),
        Heading("captured, over eager"), Heading("captured, over the fastest"), Heading("runs"),
        Heading("latest", "left"), Heading("source", "left"),
    ]  # fmt: skip
    columns = [n for n, heading in enumerate(headings) if heading.text not in without]
    kept = [replace(row, cells=[row.cells[n] for n in columns]) for row in rows]
    table = Table(label, [headings[n] for n in columns], kept, sortable=True, name=name, names_rows=1)
    return without_empty(table, keep=3)


def entry_row(board: Board, entry: Entry, dtypes: Sequence[str], base: str, problem_href: str) -> Row:
    """An entry; `base` leads from the page to the site's root."""
    subject = subject_of(board, entry)
    device = "emulator" if board.device == "emulator" else f"{named(board.device)}, {named(board.model)}"
    dtypes = [shortened(dtype, _DTYPE) for dtype in dtypes[:_DTYPES]]
    cells = [
        Cell("–" if entry.rank is None else str(entry.rank), value=entry.rank),
        Cell(named(entry.submission), href=f"{base}submissions/{subject.key}.html"),
        Cell(named(board.problem), href=problem_href),
        _mean(entry.over_eager), _mean(entry.over_fastest),
        Cell(entry.standing.value, kind=_KINDS.get(entry.standing, "unsure")), Cell(device), Cell(", ".join(dtypes)),
        _mean(entry.captured_over_eager), _mean(entry.captured_over_fastest),
        Cell(str(entry.evaluations), value=entry.evaluations),
        Cell(day(entry.date)), Cell(entry.source_sha256[:SHOWN_DIGITS], kind="digest"),
    ]  # fmt: skip
    data = {
        "problem": named(board.problem),
        "device": named(board.device),
        "dtype": " ".join(dtypes),
        "standing": entry.standing.value,
    }
    return Row(cells, data)


def shared_out(boards: Sequence[Board], room: int = ROWS_OF_A_PAGE) -> list[tuple[Board, Entry]]:
    """The first entries of each board, as many of each as there is room for, one at the least."""
    most = max((board.count for board in boards), default=0)
    counts = range(min(most, room), 1, -1)
    each = next((n for n in counts if sum(min(n, board.count) for board in boards) <= room), 1)
    return [(board, entry) for board in boards for entry in board.entries[:each]]


def _mean(mean: Mean | None) -> Cell:
    return Cell(mean_of(mean), value=mean.value if mean else None)
