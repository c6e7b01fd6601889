"""What a shell proposes for words that are no options: click asks these functions."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from harness.paths import known_problems


def problems_like(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Problems whose names begin so, or files where none does: a problem may be one."""
    return [CompletionItem(begun, type="file"), *_beginning(known_problems(), begun)]


def verbs_or_files(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The verbs that begin so, where no submission is named yet, or files where none does."""
    program = context.parent.command if context.parent else None
    verbs = program.commands if isinstance(program, click.Group) and not context.params.get("paths") else ()
    return [CompletionItem(begun, type="file"), *_beginning([name for name in verbs if name], begun)]


def _beginning(names: list[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(begun)]
