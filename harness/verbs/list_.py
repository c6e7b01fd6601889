"""`eval.py list`: problems with their cases, and the submissions that ship for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from harness.exits import Exit
from harness.paths import SUBMISSIONS, known_problems
from harness.plan import named_problem
from harness.report.tables import Column, print_columns
from harness.report.view import console
from harness.submission import shipped_for
from harness.verbs.shared.completion import problems_like

MORE = "eval.py list PROBLEM names its cases and submissions; -v names those of all."


@click.command("list", help="List problems, or the cases and submissions of those named (files or names).")
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...", shell_complete=problems_like)
@click.option("--json", "as_json", is_flag=True, help="Everything, as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Cases and submissions of all.")
def command(problems: Sequence[str], as_json: bool, verbose: bool) -> Callable[[], Exit]:
    return partial(show, problems, as_json=as_json, verbose=verbose)


def show(problems: Sequence[str], *, as_json: bool, verbose: bool) -> Exit:
    """Print them. Raises UsageError for a problem that cannot be loaded."""
    found = [_described(named_problem(asked)) for asked in problems or known_problems()]
    if as_json:
        print(msgspec.json.encode(found).decode())
    elif problems or verbose:
        for entry in found:
            _print(entry)
    else:
        _print_counts(found)
    return Exit.ACCEPTED


def _print_counts(found: Sequence[dict[str, Any]]) -> None:
    columns = [
        Column("problem", [Text(entry["problem"]) for entry in found], "left"),
        Column("cases", [Text(str(len(entry["cases"]))) for entry in found]),
        Column("timed", [Text(str(sum(case["timed"] for case in entry["cases"]))) for entry in found]),
        Column("submissions", [Text(str(len(entry["submissions"]))) for entry in found]),
    ]
    print_columns(console(sys.stdout, "auto"), "Problems", columns)
    print(f"\n{MORE}")


def _described(path: Path) -> dict[str, Any]:
    from harness.problem import load_problem

    problem = load_problem(path, random_seed=0)
    cases = [{"name": c.name, "shape": c.shape_text, "dtype": c.dtype_text, "timed": c.timed} for c in problem.cases]
    files = [path.relative_to(SUBMISSIONS).as_posix() for path in shipped_for(problem.name)]
    return {"problem": problem.name, "cases": cases, "submissions": files}


def _print(entry: dict[str, Any]) -> None:
    print(f"problem {entry['problem']}")
    for case in entry["cases"]:
        timed = "  timed" if case["timed"] else ""
        print(f"  case        {case['name']:30s} {case['shape']}  {case['dtype']}{timed}")
    for name in entry["submissions"]:
        print(f"  submission  submissions/{name}")
