"""`eval.py export`: every evaluation as JSON lines."""

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
from harness.report.files import write
from harness.report.formats import json
from harness.store import open_store
from harness.verbs.database import Line, existing, of_file
from harness.verdict import SCHEMA, Results


@click.command("export", help="Every evaluation as JSON lines, for 'eval.py import' elsewhere.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@of_file
def command(file: Path | None, db: Path | None) -> Callable[[], Exit]:
    return partial(write_lines, file, db or results_db())


def write_lines(file: Path | None, db: Path) -> Exit:
    """Write them to `file`, or to standard output."""
    with open_store(existing(db)) as store:
        lines = []
        for stored in store.stored():
            results = Results(schema=SCHEMA, environment=dict(stored.environment), evaluations=[stored.evaluation])
            written = msgspec.json.decode(json.dumps(results))
            texts = [
                (store.source(sha256) or b"").decode(errors="replace")
                for sha256 in (stored.evaluation.source_sha256, stored.evaluation.problem_sha256)
            ]
            line = Line(SCHEMA, written["environment"], written["evaluations"][0], *texts)
            lines.append(msgspec.json.encode(line).decode() + "\n")
    if file is None:
        sys.stdout.writelines(lines)
    else:
        try:
            write(file, "".join(lines))
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    return Exit.ACCEPTED
