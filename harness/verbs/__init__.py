"""What eval.py does beside judging: a verb a file, each with its options (`command`) and what it does. What several
verbs take is in shared/, and what the gate runs in gating/.

A verb's `command` gives a function without arguments, which does it and returns the exit code.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import click

# By the names of their files; where that would be a word of Python's, or a type's, `_` stands behind it.
_NAMES = (
    "audit",
    "bundle",
    "compare",
    "env",
    "export",
    "gate",
    "history",
    "import",
    "leaderboard",
    "list",
    "new",
    "profile",
    "rejudge",
    "report",
    "serve",
    "verify",
    "watch",
    "withdraw",
)
_SPELT = {"import": "import_", "list": "list_"}


class _Commands(Mapping[str, click.Command]):
    """Each is imported when it is asked for: all of them take a fifth of a second, and judging needs none."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in _NAMES:
            raise KeyError(name)
        command = importlib.import_module(f"harness.verbs.{_SPELT.get(name, name)}").command
        assert isinstance(command, click.Command)
        return command

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


def commands() -> Mapping[str, click.Command]:
    """The verbs by their names."""
    return _Commands()
