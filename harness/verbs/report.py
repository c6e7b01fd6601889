"""`eval.py report`: what the database holds, as a site of pages."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.verbs.import_ import read_files
from harness.verbs.shared.database import existing, of_file

NEEDED = ("jinja2", "markupsafe", "pygments")
MISSING = (
    "The site is made with {} (pip install 'kernelgate[html]'), which is not installed here. 'eval.py leaderboard' "
    "shows the boards without it."
)


@click.command(
    "report",
    help="Write the boards and a page for each submission and problem, to be viewed without a network. Of the "
    "database, and of JSON results where files or folders are named; with them, and no --db, of these alone.",
)
@click.argument("results", type=click.Path(path_type=Path), nargs=-1, metavar="[JSON]...")
@click.option(
    "--html", "out", type=click.Path(path_type=Path), metavar="DIR", required=True, help="The folder to write it to."
)
@of_file
def command(results: Sequence[Path], out: Path, db: Path | None) -> Callable[[], Exit]:
    return partial(write_site, out, results, db)


def write_site(out: Path, results: Sequence[Path], db: Path | None) -> Exit:
    """Write it, and say where its first page is. Raises UsageError where there is nothing to show, or no place."""
    try:
        from harness.report.site.build import build_site
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package not in NEEDED:
            raise
        raise UsageError(MISSING.format(package)) from error
    with _database(results, db) as (read, code):
        built = build_site(read, out, named=", ".join(map(str, [db] * bool(db) + [*results])))
    print(f"{built.index}: {built.pages} pages.")
    return code


@contextlib.contextmanager
def _database(results: Sequence[Path], db: Path | None) -> Iterator[tuple[Path, Exit]]:
    """A database of all that was named, and how reading it went: files of results leave their user's as it is."""
    if not results:
        yield existing(db or results_db()), Exit.ACCEPTED
        return
    with tempfile.TemporaryDirectory(prefix="kernelgate-report-") as folder:
        together = Path(folder) / "results.db"
        if db is not None:
            _copy(existing(db), together)
        yield together, read_files(results, together)


def _copy(db: Path, to: Path) -> None:
    """As SQLite copies a database that others may write to."""
    try:
        with contextlib.closing(sqlite3.connect(db)) as read, contextlib.closing(sqlite3.connect(to)) as written:
            read.backup(written)
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{db} cannot be read: {error}.") from error
