"""What verbs of the database share; it is no verb itself."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from harness.errors import UsageError

of_file = click.option(
    "--db", type=click.Path(path_type=Path), metavar="FILE", help="The database (default: KERNELGATE_DB)."
)
of_problem = click.option("--problem", metavar="NAME", help="Only of this problem.")


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of an export: one evaluation as `--json` writes it, and the texts that it is of."""

    schema: str
    environment: dict[str, object]
    evaluation: dict[str, object]
    source: str = ""
    problem_source: str = ""


def existing(db: Path) -> Path:
    """Raises UsageError where there is no such file: what reads makes none."""
    if not db.exists():
        raise UsageError(f"There is no database {db}: 'eval.py [PATH]' keeps what it judges, 'eval.py import' reads.")
    return db
