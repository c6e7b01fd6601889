"""Options of the verbs that read or write the database."""

from __future__ import annotations

from pathlib import Path

import click

from harness.errors import UsageError

of_file = click.option(
    "--db", type=click.Path(path_type=Path), metavar="FILE", help="The database (default: KERNELGATE_DB)."
)
of_problem = click.option("--problem", metavar="NAME", help="Only of this problem.")


def existing(db: Path) -> Path:
    """Raises UsageError where there is no such file: what reads makes none."""
    if not db.exists():
        raise UsageError(f"There is no database {db}: 'eval.py [PATH]' keeps what it judges, 'eval.py import' reads.")
    return db
