"""`eval.py compare`: whether one evaluation is faster than another, case by case."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.report.encoding import encoded
from harness.report.files import require_writable, write
from harness.report.view import console
from harness.store import Named, Store, Stored, choose, open_store
from harness.verbs.shared.database import of_file, of_problem
from harness.verbs.shared.sides import Wanted, named, source_of
from harness.verdict import Accepted, Evaluation, status_of

if TYPE_CHECKING:
    from harness.comparison import Comparison, Side


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    a: str
    b: str
    wanted: Wanted
    db: Path
    anyway: bool
    json: Path | None


@click.command("compare", help="Whether B is faster or slower than A, case by case, and how their sources differ.")
@click.argument("a")
@click.argument("b")
@of_problem
@click.option("--device", type=click.Choice(["cuda", "cpu", "emulator"]), help="Only on this device.")
@click.option("--anyway", is_flag=True, help="Also across boards: other problems' files, devices, judges or versions.")
@click.option("--json", type=click.Path(path_type=Path), metavar="FILE", help="Write the comparison there, too.")
@of_file
def command(
    a: str, b: str, problem: str | None, device: str | None, anyway: bool, json: Path | None, db: Path | None
) -> Callable[[], Exit]:
    return partial(show, Asked(a, b, Wanted(problem, device), db or results_db(), anyway, json))


def show(asked: Asked) -> Exit:
    """Compare, print and write. Raises UsageError where a side names nothing, or the two are on different boards."""
    from harness.report.comparison import print_comparison, print_sources  # scipy.stats takes a second to load

    if asked.json:
        require_writable(asked.json, "--json")
    with _store(asked.db) as store:
        a, b = (named(word, store, asked.db, asked.wanted) for word in (asked.a, asked.b))
        found = _compared(a, b, anyway=asked.anyway)
        sources = [source_of(side.source_sha256, store) for side in (found.a, found.b)]
    page = console(sys.stdout, "auto")
    print_comparison(page, found)
    print_sources(page, found, *sources)
    if asked.json:
        _write(asked.json, encoded(found))
    return _exit(found)


@contextlib.contextmanager
def _store(db: Path) -> Iterator[Store | None]:
    """The database, where there is one: files of results need none."""
    if not db.exists():
        yield None
        return
    with open_store(db) as store:
        yield store


def _compared(a: Named, b: Named, *, anyway: bool) -> Comparison:
    from harness.comparison import compare

    first, second, differs = choose(a, b, anyway=anyway)
    sides = _side(a.found_in, first), _side(b.found_in, second)
    return compare(first.evaluation, second.evaluation, sides, differs)


def _side(found_in: str, stored: Stored) -> Side:
    from harness.comparison import Side

    evaluation = stored.evaluation
    return Side.of(evaluation, found_in=found_in, date=stored.date, why_untimed=_why_untimed(evaluation))


def _why_untimed(evaluation: Evaluation) -> str:
    if not isinstance(evaluation, Accepted):
        return f"{status_of(evaluation)}: {evaluation.reason}. {evaluation.message}"
    if any(case.timing for case in evaluation.cases):
        return ""
    return f"it was not timed: {evaluation.not_timed}." if evaluation.not_timed else "it was not timed."


def _exit(comparison: Comparison) -> Exit:
    if any(side.status == "rejected" for side in (comparison.a, comparison.b)):
        return Exit.REJECTED
    return Exit.ACCEPTED if comparison.rows else Exit.NOTHING


def _write(path: Path, text: str) -> None:
    try:
        write(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
