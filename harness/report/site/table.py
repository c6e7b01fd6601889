"""Tables as values, and as HTML: a page has a thousand cells, which a template takes longer for than for all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from markupsafe import Markup

from harness.report.site.texts import plain


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

    @property
    def html(self) -> Markup:
        """In a region that scrolls to the side, also by keyboard."""
        label = _escaped(self.label)
        return Markup(
            f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">\n'
            f"<table{' data-sortable' if self.sortable else ''}{_attribute('id', self.name)}>\n"
            f'<caption class="unseen">{label}</caption>\n'
            f"<thead><tr>{''.join(map(_heading, self.headings))}</tr></thead>\n"
            f"<tbody>\n{''.join(map(self._row, self.rows))}</tbody>\n</table>\n</div>"
        )

    def _row(self, row: Row) -> str:
        data = "".join(_attribute(f"data-{name}", value) for name, value in row.data.items())
        cells = "".join(
            _cell(cell, heading.align, names_row=column == self.names_rows)
            for column, (cell, heading) in enumerate(zip(row.cells, self.headings, strict=True))
        )
        return f"<tr{_attribute('class', row.kind)}{data}>{cells}</tr>\n"


def _heading(heading: Heading) -> str:
    if not heading.text:
        return "<td></td>"
    kind = _attribute("class", "r" if heading.align == "right" else "")
    return f'<th scope="col"{kind}{_attribute("title", heading.title)}>{_escaped(heading.text)}</th>'


def _cell(cell: Cell, align: str, *, names_row: bool) -> str:
    """A cell; what a script sorts by stands in `data-v`, which is empty in a column of figures where there is none."""
    begin, end = ('<th scope="row"', "</th>") if names_row else ("<td", "</td>")
    words = _escaped(cell.text)
    if cell.href:
        words = f'<a href="{_escaped(cell.href)}">{words or "–"}</a>'
    value = f' data-v="{cell.value}"' if cell.value is not None else " data-v" if align == "right" else ""
    return f"{begin}{_attribute('class', cell.kind)}{value}>{words}{end}"


def _attribute(name: str, value: str) -> str:
    return f' {name}="{_escaped(value)}"' if value else ""


def _escaped(text: str) -> str:
    return escape(plain(text))


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
