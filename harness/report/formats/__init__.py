"""The formats of reports: a module here is a format, and its name is how it is asked for.

A format's module has `render(results, view)`, which gives the whole report as text.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

from harness.errors import UsageError
from harness.report.view import View
from harness.verdict import Results


class Format(Protocol):
    """What a module here has to define."""

    def render(self, results: Results, view: View) -> str:
        """The report, with a line end behind its last line."""
        ...


def names() -> list[str]:
    """The formats that there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str) -> Format:
    """Raises UsageError for a name that is none of `names()`."""
    if name not in names():
        raise UsageError(f"There is no format '{name}' for reports; there are {', '.join(names())}.")
    return cast(Format, importlib.import_module(f"{__name__}.{name}"))
