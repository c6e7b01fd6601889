"""The first page: the boards of all problems in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from harness.report.site import names
from harness.report.site.entries import ROWS_OF_A_PAGE, board_table, entry_row, shared_out
from harness.report.site.gather import Gathered
from harness.report.site.table import Table
from harness.store import Board, Entry, Standing

TABLE = "entries"

DtypesOf = Callable[[Board, Entry], Sequence[str]]


@dataclass(frozen=True)
class Filter:
    """A column that readers choose by."""

    name: str
    choices: Sequence[str]


@dataclass(frozen=True)
class IndexPage:
    """What the template shows; of many boards one of several pages."""

    file: str
    following: str
    preceding: str
    boards: int
    evaluations: int
    table: Table
    filters: Sequence[Filter]
    left_out: int
    """Entries that only the problems' pages show."""
    standings: Sequence[str]


def index_pages(gathered: Gathered, dtypes_of: DtypesOf) -> Iterator[IndexPage]:
    """The pages."""
    placed = shared_out(gathered.latest)
    starts = range(0, max(len(placed), 1), ROWS_OF_A_PAGE)
    left_out = sum(board.count for board in gathered.latest) - len(placed)
    for number, start in enumerate(starts, 1):
        shown = placed[start : start + ROWS_OF_A_PAGE]
        rows = [
            entry_row(board, entry, dtypes_of(board, entry), "", f"problems/{names.problem_key(board.problem)}.html")
            for board, entry in shown
        ]
        rows = [
            replace(row, kind="" if n and shown[n - 1][0] is shown[n][0] else "begins") for n, row in enumerate(rows)
        ]
        yield IndexPage(
            file=names.page("index", number),
            following=names.page("index", number + 1) if number < len(starts) else "",
            preceding=names.page("index", number - 1) if number > 1 else "",
            boards=len(gathered.latest),
            evaluations=gathered.evaluations,
            table=board_table("Entries of all boards", rows, TABLE),
            filters=[
                Filter("problem", sorted({row.data["problem"] for row in rows})),
                Filter("device", sorted({row.data["device"] for row in rows})),
                Filter("dtype", sorted({dtype for row in rows for dtype in row.data["dtype"].split()})),
                Filter("standing", [s.value for s in Standing if s.value in {row.data["standing"] for row in rows}]),
            ],
            left_out=left_out,
            standings=[f"{s.value}: {s.meaning}" for s in Standing if s in {entry.standing for _, entry in shown}],
        )
