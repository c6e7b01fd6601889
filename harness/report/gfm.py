"""Text from anywhere as GitHub-flavoured Markdown: it shows as it is, and is no markup, whatever it holds.

The syntax is that of https://github.github.com/gfm, which makes links of bare addresses, too; beside it GitHub makes
links of `@name` and `#1` (https://docs.github.com/en/get-started/writing-on-github) and formulas of what stands
between `$`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.report.tables import Column

# A row of a table is cut at pipes before anything else is looked at, and backslashes count differently from reader to
# reader: neither is left as it is. Behind `@` and `#` a space without width keeps GitHub from telling people.
_AS_SHOWN = str.maketrans(
    {"\\": "&#92;", "|": "&#124;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@&#8203;", "#": "#&#8203;"}
    | {mark: f"\\{mark}" for mark in "`*_[]~$"}
)
# What a bare address begins with (section 6.9 of the syntax): a space without width behind it keeps it from being one.
_BEGINS_LINK = re.compile(r"(:)(?=//)|(www)(?=\.)", re.IGNORECASE)
_BEGINS_BLOCK = re.compile(r"([-+=])|(\d+)([.)])(?=\s|$)")
_BACKTICKS = re.compile(r"`+")


def escaped(text: str) -> str:
    """In one line, for a cell, an item of a list or a paragraph."""
    line = " ".join(_printable(text).split()).translate(_AS_SHOWN)
    line = _BEGINS_LINK.sub(r"\g<0>&#8203;", line)
    begins = _BEGINS_BLOCK.match(line)
    if not begins:
        return line
    number = begins[2] or ""
    return f"{number}\\{line[len(number) :]}"


def fenced(text: str, language: str = "text") -> str:
    """A block of lines as they are."""
    lines = "\n".join(_printable(line) for line in text.splitlines())
    fence = "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(lines))])
    return f"{fence}{language}\n{lines}\n{fence}"


def table(columns: Sequence[Column]) -> str:
    """The columns as a table; the first one names the rows and keeps what they are indented by."""
    marks = {"left": ":---", "right": "---:"}
    rows = [[escaped(column.heading) for column in columns], [marks[column.justify] for column in columns]]
    rows += [[_cell(cell.plain) for cell in row] for row in zip(*(column.cells for column in columns), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    indent = len(text) - len(text.lstrip(" "))
    return "&nbsp;" * indent + escaped(text)


def _printable(text: str) -> str:
    """With characters that cannot be seen, or turn the direction of writing, as Python writes them."""
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)
