"""Tables as values; the template `_parts.html` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Cell:
    """One cell: words, and where they lead."""

    text: str
    href: str = ""
    value: float | None = None
    """What a column is sorted by, where that is not the text."""
    kind: str = ""
    """A class of the style sheet."""


@dataclass(frozen=True)
class Heading:
    """A column's heading."""

    text: str
    align: Literal["left", "right"] = "right"
    title: str = ""


@dataclass(frozen=True)
class Row:
    """A row; `data` is what filters ask for, by the names of the filters."""

    cells: Sequence[Cell]
    data: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table; a script makes its columns sortable where it says so. The first column names the rows."""

    label: str
    headings: Sequence[Heading]
    rows: Sequence[Row]
    sortable: bool = False
    name: str = ""
    """Its identifier, for filters."""
    names_rows: int = 0
    """Which column names its rows."""


def without_empty(table: Table, keep: int = 1) -> Table:
    """The table without columns that say nothing, behind the first `keep` ones."""
    shown = [
        column
        for column in range(len(table.headings))
        if column < keep or any(row.cells[column].text not in ("", "–") for row in table.rows)
    ]
    rows = [Row([row.cells[column] for column in shown], row.data, row.kind) for row in table.rows]
    headings = [table.headings[column] for column in shown]
    names_rows = shown.index(table.names_rows) if table.names_rows in shown else 0
    return Table(table.label, headings, rows, table.sortable, table.name, names_rows)
