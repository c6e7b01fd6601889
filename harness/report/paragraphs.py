"""Sentences that are broken between words where the page is narrower than they are. Commands are not printed so: who
copies one wants it whole."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.text import Text

from harness.report.view import WIDTH_OF_FILES

INDENT = "  "
DEEPER = "    "


def print_paragraph(console: Console, head: Text, text: str, style: str = "") -> None:
    """`text` in a style behind `head`. A submission's own words may hold line ends: no line of theirs may look like one
    of ours."""
    first, *others = f"{head.plain}{text}".split("\n")
    lines = [
        *wrapped(first, console.width),
        *(part for line in others for part in wrapped(DEEPER + line, console.width)),
    ]
    styled = Text(lines[0], style=style)
    for span in head.spans:
        styled.stylize(span.style, span.start, span.end)
    for line in [styled, *(Text(line, style=style) for line in lines[1:])]:
        console.print(line, soft_wrap=True)


def wrapped(line: str, width: int) -> list[str]:
    """Lines of at most `width` characters, unless a word has more; the line as it is where it goes to a file."""
    if width >= WIDTH_OF_FILES or len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=DEEPER, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
