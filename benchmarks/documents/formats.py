"""The formats of reports: docs/reports.md is made from harness/report/formats."""

from __future__ import annotations

import inspect
import re

from harness.report import formats

_ADDRESS = re.compile(r"https://\S+\w")


def table() -> str:
    """A line for each format: the first paragraph of its module, and the first address that it names."""
    rows = [_row(name) for name in formats.names()]
    return "\n".join(["| format | what it is | defined in |", "|---|---|---|", *rows]) + "\n"


def _row(name: str) -> str:
    text = inspect.getdoc(formats.find(name)) or ""
    what = " ".join(text.partition("\n\n")[0].split())
    address = _ADDRESS.search(text)
    return f"| `{name}` | {what} | {f'<{address[0]}>' if address else ''} |"
