"""Text of strangers in the log of a GitHub workflow, where a line that begins with `::` is a command to the runner.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands, "Stopping and starting workflow
commands": between two lines with a word that nobody else knows, no line is one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def no_commands(stream: TextIO) -> Iterator[None]:
    """What is written to `stream` meanwhile commands nothing; elsewhere than in a workflow nothing is done."""
    if not os.environ.get("GITHUB_ACTIONS"):
        yield
        return
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", file=stream, flush=True)
    try:
        yield
    finally:
        print(f"\n::{word}::", file=stream, flush=True)
