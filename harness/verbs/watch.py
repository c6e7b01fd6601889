"""`eval.py watch`: a submission is judged each time it is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import no_such_problem
from harness.plan import named_problem, problem_of
from harness.report.view import Color
from harness.submission import find_submissions
from harness.verbs.shared.choosing import chooses_cases
from harness.verbs.shared.completion import problems_like
from harness.verbs.shared.judging import how_it_gives_verdicts
from harness.watch.asked import Asked
from harness.watch.saves import require_watchfiles
from harness.watch.screen import Screen
from harness.watch.session import Session


@click.command(
    "watch",
    help="Judge a submission, or those of a folder, each time it is saved, and show what got better or worse since the "
    "last verdict. Keys time it, show the failing case, and stop. Verdicts are kept as without a verb.",
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--problem",
    metavar="PROBLEM",
    shell_complete=problems_like,
    help="A problem file, or the name of one in problems/ (default: by folder).",
)
@how_it_gives_verdicts
@chooses_cases
@click.option("--dtype", default="", metavar="DTYPE", help="Only cases of this dtype.")
@click.option("--seed", type=int, metavar="N", help="The same data for every verdict (default: drawn anew for each).")
@click.option("-x", "--first-failure", is_flag=True, help="Stop at the first failed case.")
@click.option("--against", metavar="LIST", help="Baselines when it is timed, as without a verb.")
@click.option(
    "--quick",
    is_flag=True,
    help="When it is timed: fewer rounds, of the first timed case, or of those that -k and --dtype choose.",
)
@click.option("--db", type=click.Path(path_type=Path), metavar="FILE", help="The database that verdicts are kept in.")
@click.option("--no-store", is_flag=True, help="Keep no verdict.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def command(
    path: Path, problem: str | None, device: str | None, isolation: str, check: bool, color: Color, **given: Any
) -> Callable[[], Exit]:
    if given["db"] and given["no_store"]:
        raise UsageError("--db and --no-store exclude each other; give one of the two.")
    words = tuple(_words(problem=problem, device=device, isolation=isolation, **given))
    of_times = tuple(_words_of_times(given["against"], given["quick"]))
    return partial(watch, Asked(path, problem, device, isolation, check, words, of_times), color)


def watch(asked: Asked, color: Color) -> Exit:
    """Watch until it is stopped. Raises UsageError for what cannot be watched, and HarnessError where the system cannot
    watch it."""
    require_watchfiles()
    _require_submissions(asked.path)
    _require_problem(asked)
    asyncio.run(Session(asked, Screen(color)).run())
    return Exit.ACCEPTED


def _words(
    *,
    problem: str | None,
    device: str | None,
    isolation: str,
    timeout_s: float,
    select: str,
    dtype: str,
    seed: int | None,
    first_failure: bool,
    db: Path | None,
    no_store: bool,
    **_given: Any,
) -> Iterator[str]:
    """The options of every run."""
    yield from ("--isolation", isolation, "--timeout", str(timeout_s))
    for name, value in {
        "--problem": problem, "--device": device, "-k": select, "--dtype": dtype, "--seed": seed, "--db": db
    }.items():  # fmt: skip
        if value not in (None, ""):
            yield from (name, str(value))
    yield from ["-x"] * first_failure + ["--no-store"] * no_store


def _words_of_times(against: str | None, quick: bool) -> Iterator[str]:
    """The options of runs that time."""
    if against is not None:
        yield from ("--against", against)
    if quick:
        yield "--quick"


def _require_submissions(path: Path) -> None:
    if not path.exists():
        raise UsageError(f"There is no file or folder {path}. 'eval.py new PROBLEM {path}' writes one to begin with.")
    if not path.is_dir() and (path.suffix != ".py" or not path.is_file()):
        raise UsageError(f"{path} is no .py file, which a submission is. Give one, or a folder of them.")


def _require_problem(asked: Asked) -> None:
    """Raises UsageError where one that is watched belongs to no problem."""
    if asked.problem is None:
        for path in find_submissions([asked.path]):
            problem_of(path.resolve())
        return
    problem = named_problem(asked.problem)
    if not problem.is_file():
        raise UsageError(no_such_problem(problem))
