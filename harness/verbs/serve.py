"""`eval.py serve`: judging for programs in any language, by JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.lanes.options import Options, options
from harness.serve.server import serve
from harness.verbs.shared.choosing import chooses_cases
from harness.verbs.shared.completion import problems_like
from harness.verbs.shared.judging import how_it_judges


@click.command(
    "serve",
    help="Judge for another program: a request in JSON a line on standard input, an answer a line on standard output, "
    "none longer than 4 kB. What a judge loads stays loaded between requests. docs/api.md has the fields. Options are "
    "those of requests that do not say otherwise. Nothing is kept in the database.",
)
@click.option(
    "--problem",
    metavar="PROBLEM",
    shell_complete=problems_like,
    help="A problem file, or the name of one in problems/ (default: by folder).",
)
@how_it_judges
@chooses_cases
@click.option("-j", "--jobs", type=int, default=1, show_default=True, metavar="N", help="Judge so many at a time.")
@click.option("--limit", "limit_s", type=float, metavar="S", help="Seconds that judging one may take (default: none).")
def command(jobs: int, limit_s: float | None, isolation: str, **given: Any) -> Callable[[], Exit]:
    if jobs < 1:
        raise UsageError(f"--jobs must be at least 1, and {jobs} was given.")
    if limit_s is not None and not limit_s > 0:
        raise UsageError(f"--limit must be more than 0 seconds, and {limit_s:g} was given.")
    return partial(_serve, jobs, options(given, Options()), isolation, limit_s)


def _serve(jobs: int, usual: Options, isolation: str, limit_s: float | None) -> Exit:
    asyncio.run(serve(jobs, usual, isolation, limit_s))
    return Exit.ACCEPTED
