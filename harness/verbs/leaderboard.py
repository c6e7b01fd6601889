"""`eval.py leaderboard`: who is fastest, and who has no rank yet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import msgspec

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.report.board import SHOWN, print_board
from harness.report.view import console
from harness.store import boards, open_store
from harness.verbs.shared.database import existing, of_file


@click.command("leaderboard", help="The boards of a problem, or of all: who is fastest, and who has no rank yet.")
@click.argument("problem", required=False)
@click.option("--older", is_flag=True, help="Also boards of other judges, cases and versions.")
@click.option("--all", "every", is_flag=True, help=f"All entries, and not {SHOWN} of each board.")
@click.option("--json", "as_json", is_flag=True, help="All entries, as JSON.")
@of_file
def command(problem: str | None, older: bool, every: bool, as_json: bool, db: Path | None) -> Callable[[], Exit]:
    limit = sys.maxsize if every or as_json else SHOWN
    return partial(show_boards, problem, db or results_db(), older=older, limit=limit, as_json=as_json)


def show_boards(problem: str | None, db: Path, *, older: bool, limit: int, as_json: bool = False) -> Exit:
    """Print them. Raises UsageError where there is none."""
    with open_store(existing(db)) as store:
        found = boards(store, problem, older=older, limit=limit)
    if not found:
        what = f"of {problem}" if problem else "at all"
        raise UsageError(f"{db} has no evaluation {what}. 'eval.py [PATH]' judges and keeps, 'eval.py import' reads.")
    if as_json:
        print(msgspec.json.encode(found).decode())
        return Exit.ACCEPTED
    for board in found:
        print_board(console(sys.stdout, "auto"), board)
    return Exit.ACCEPTED
