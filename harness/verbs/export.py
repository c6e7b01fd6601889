"""`eval.py export`: every evaluation as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.report.files import write
from harness.report.lines import line_of
from harness.store import Store, open_store
from harness.verbs.shared.database import existing, of_file
from harness.verdict import Evaluation


@click.command("export", help="Every evaluation as JSON lines, for 'eval.py import' elsewhere.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@of_file
def command(file: Path | None, db: Path | None) -> Callable[[], Exit]:
    return partial(write_lines, file, db or results_db())


def write_lines(file: Path | None, db: Path) -> Exit:
    """Write them to `file`, or to standard output."""
    with open_store(existing(db)) as store:
        lines = [
            line_of(stored.evaluation, stored.environment, _texts(store, stored.evaluation))
            for stored in store.stored()
        ]
    if file is None:
        sys.stdout.writelines(lines)
    else:
        try:
            write(file, "".join(lines))
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    return Exit.ACCEPTED


def _texts(store: Store, evaluation: Evaluation) -> dict[str, bytes]:
    """What the store has of the texts that an evaluation is of."""
    wanted = (evaluation.source_sha256, evaluation.problem_sha256)
    return {sha256: text for sha256 in wanted if (text := store.source(sha256)) is not None}
