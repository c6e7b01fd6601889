"""Text of strangers in the log of a GitHub workflow, where a line that begins with `::` is a command to the runner, and
so is what follows `##[` in any line.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands, "Stopping and starting workflow
commands": between two lines with a word that nobody else knows, no line is one. What `##[` does is in the runner's
source alone (https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import TextIO

_COMMAND = re.compile(r"(?m)^(?P<indent>[^\S\n]*):(?=:)|#(?=#\[)")


@contextlib.contextmanager
def no_commands(stream: TextIO) -> Iterator[None]:
    """What is written to `stream` meanwhile commands nothing. Elsewhere than in a workflow nothing is done, nor where
    the stream is a file, which is no log."""
    if not _is_log(stream):
        yield
        return
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", file=stream, flush=True)
    try:
        yield
    finally:
        print(f"\n::{word}::", file=stream, flush=True)


def without_commands(text: str, stream: TextIO, reference: Callable[[str], str]) -> str:
    """`text` for programs to read, where no line between may be added: in a log each character that makes a command
    stands as `reference` writes it."""
    if not _is_log(stream):
        return text
    return _COMMAND.sub(lambda found: (found["indent"] or "") + reference(found[0][-1]), text)


def would_command(text: str) -> bool:
    """Whether a line of it would be a command."""
    return _COMMAND.search(text) is not None


def _is_log(stream: TextIO) -> bool:
    if not os.environ.get("GITHUB_ACTIONS"):
        return False
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # it is no stream of this process's own
        return True
