"""`eval.py rejudge`: sources of the database are judged anew, and what moved is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from harness.again.folder import named_in_commands, private_folder, with_commands
from harness.again.moves import Move, Turn, moves
from harness.again.running import Shown, judged, show
from harness.again.stored import Asked, Choice, choose, plan_of
from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.plan import Arguments
from harness.report.tables import Column, print_columns
from harness.report.view import console
from harness.storage import cache
from harness.store import open_store
from harness.store.pairs import SHOWN_DIGITS
from harness.verbs.shared.choosing import chooses_cases
from harness.verbs.shared.database import existing, of_file
from harness.verbs.shared.judging import how_it_judges, how_it_shows
from harness.verdict import Evaluation, status_of


@click.command(
    "rejudge",
    help="Judge sources of the database anew with this judge, keep the verdicts, and show which of them moved: sources "
    "whose latest verdict is another judge's, or those that are named, whatever judged them and even if they were "
    "withdrawn. Exits with 1 when one that was accepted is rejected.",
)
@click.argument("submissions", nargs=-1, metavar="[SUBMISSION]...")
@click.option("--problem", metavar="PROBLEM", help="Only of this problem: a name in problems/, or a file.")
@click.option("--older-than", metavar="VERSION", default="", help="Only what was judged before that judge's first day.")
@click.option("--all", "every", is_flag=True, help="Also what this judge has judged.")
@how_it_judges
@chooses_cases
@click.option("--seed", type=int, metavar="N", help="Repeat a run's data (default: drawn anew).")
@click.option(
    "--quick",
    is_flag=True,
    help="Fewer rounds, against eager alone: of the first timed case, or of those that -k chooses.",
)
@of_file
@how_it_shows
def command(
    submissions: Sequence[str],
    problem: str | None,
    older_than: str,
    every: bool,
    db: Path | None,
    shown: Shown,
    quick: bool,
    **given: Any,
) -> Callable[[], Exit]:
    if every and older_than:
        raise UsageError("--all and --older-than exclude each other; give one of the two.")
    asked = Asked(tuple(submissions), problem, older_than, every)
    arguments = Arguments(effort="quick" if quick else "usual", **given)
    return partial(rejudge, asked, arguments, db or results_db(), shown)


def rejudge(asked: Asked, arguments: Arguments, db: Path, shown: Shown) -> Exit:
    """Judge, keep, and print. Raises what ended the run before its end, when what was judged is printed."""
    with cache.in_use(), private_folder() as folder:
        with open_store(existing(db)) as store:
            choice = choose(store, asked, folder, arguments.device)
        if not choice.chosen:
            return _nothing(choice, db)
        plan = plan_of(choice, arguments)
        outcome = judged(plan, shown, partial(_with_its_command, choice), db)
        show(outcome.results, plan, shown)
    found = moves(choice.chosen, outcome.results.evaluations)
    _print_moves(console(sys.stdout, shown.color), found, choice)
    if outcome.not_kept:
        print(f"eval.py: {outcome.not_kept}", file=sys.stderr)
    if outcome.cause:
        raise outcome.cause
    return _exit(found)


def _exit(found: Sequence[Move]) -> Exit:
    turns = {move.turn for move in found}
    return Exit.REJECTED if Turn.WORSE in turns else Exit.HARNESS if Turn.UNKNOWN in turns else Exit.ACCEPTED


def _nothing(choice: Choice, db: Path) -> Exit:
    """Say why nothing is judged. Raises UsageError where nothing could be."""
    if not (choice.left_out or choice.up_to_date):
        raise UsageError(f"{db} has no evaluation of what was asked for. 'eval.py leaderboard' shows which there are.")
    for left_out in choice.left_out:
        print(f"Left out: {left_out.name}, {left_out.why}.", file=sys.stderr)
    print(f"Nothing to judge anew; {choice.up_to_date} up to date. --all judges them, too.")
    return Exit.ACCEPTED


def _with_its_command(choice: Choice, evaluation: Evaluation) -> Evaluation:
    """Commands that repeat a case judge the source of the database, as which it will lie nowhere."""
    sha256 = evaluation.source_sha256
    named = [named_in_commands(one.submission.path) for one in choice.chosen if one.submission.sha256 == sha256]

    def command(repeat: str) -> str:
        return next((repeat.replace(n, f"rejudge {sha256[:SHOWN_DIGITS]}", 1) for n in named if n in repeat), repeat)

    return with_commands(evaluation, command)


def _print_moves(page: Console, found: Sequence[Move], choice: Choice) -> None:
    """The verdicts that moved, how many did, and what else may have moved them."""
    moved = [move for move in found if move.turn not in (Turn.SAME, Turn.FIRST)]
    page.print()
    if moved:
        print_columns(page, "Verdicts that moved", _columns(moved))
    counts = {turn: sum(move.turn == turn for move in found) for turn in Turn}
    what = ", ".join(f"{counts[move]} {move}" for move in Turn if counts[move])
    page.print(Text(f"{len(found)} judged anew: {what}; {choice.up_to_date} were up to date"), soft_wrap=True)
    for problem in choice.other_problems:
        sentence = f"{problem} has changed since verdicts on it were given; what moved there may be its doing"
        page.print(Text(sentence), soft_wrap=True)


def _columns(moved: Sequence[Move]) -> list[Column]:
    before = [move.before for move in moved]
    was = [f"{verdict.status} {verdict.reason}".strip() for verdict in before]
    now = [f"{status_of(move.now)} {move.now.reason or ''}".strip() for move in moved]
    return [
        Column("submission", [Text(move.now.submission) for move in moved], "left"),
        Column("problem", [Text(move.now.problem) for move in moved], "left"),
        Column("device", [Text(_devices(move)) for move in moved], "left"),
        Column("was", [Text(text) for text in was], "left"),
        Column("by judge", [Text(verdict.judge or "unknown") for verdict in before], "left"),
        Column("on", [Text(verdict.date[:10] or "unknown") for verdict in before], "left"),
        Column("is", [Text(text) for text in now], "left"),
        Column("source", [Text(move.now.source_sha256[:SHOWN_DIGITS]) for move in moved], "left"),
    ]


def _devices(move: Move) -> str:
    device, earlier = move.now.device, move.before.device
    return device if device == earlier else f"{device}, was on {earlier}"
