"""`eval.py history`: every evaluation of a submission."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.report.board import print_history
from harness.report.view import console
from harness.store import history, open_store
from harness.verbs.shared.database import existing, of_file, of_problem


@click.command(
    "history", help="Every evaluation of a submission, by its name or the beginning of its source's SHA-256."
)
@click.argument("submission")
@of_problem
@of_file
def command(submission: str, problem: str | None, db: Path | None) -> Callable[[], Exit]:
    return partial(show_history, submission, problem, db or results_db())


def show_history(submission: str, problem: str | None, db: Path) -> Exit:
    """Print it. Raises UsageError where there is none."""
    with open_store(existing(db)) as store:
        found = history(store, submission.removesuffix(".py").rpartition("/")[2], problem)
    if not found:
        raise UsageError(f"{db} has no evaluation of '{submission}'. 'eval.py leaderboard' shows which there are.")
    print_history(console(sys.stdout, "auto"), found)
    return Exit.ACCEPTED
