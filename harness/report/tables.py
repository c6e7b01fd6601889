"""Tables that fit the page: columns that have no room go on below, behind the first column again.

There a row stands only if it has something to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

# What rich puts between two columns.
GAP = 2


@dataclass(frozen=True)
class Column:
    """A heading and the cells below it."""

    heading: str
    cells: Sequence[Text]
    justify: Literal["left", "right"] = "right"

    @property
    def width(self) -> int:
        """In characters."""
        return max([Text(self.heading).cell_len, *(cell.cell_len for cell in self.cells)])


def print_columns(console: Console, title: str, columns: Sequence[Column]) -> None:
    """Print the columns under a title; the first one names the rows."""
    # A table's own title would be broken where the table ends.
    console.print(Text(title, style="table.title"), soft_wrap=True)
    for number, group in enumerate(_groups(columns, console.width)):
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in group:
            table.add_column(column.heading, justify=column.justify, no_wrap=True)
        for name, *cells in zip(*(column.cells for column in group), strict=True):
            if not number or any(cell.plain for cell in cells):
                table.add_row(name, *cells)
        if table.row_count:
            console.print(table)


def _groups(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """The columns in their order, as many at a time as fit, each time with the first."""
    first, *others = columns
    group, used = [first], first.width
    for column in others:
        if len(group) > 1 and used + GAP + column.width > width:
            yield group
            group, used = [first], first.width
        group.append(column)
        used += GAP + column.width
    yield group
