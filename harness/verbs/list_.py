"""`eval.py list`: problems with their cases, and the submissions that ship for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.exits import Exit
from harness.paths import PROBLEMS, SUBMISSIONS
from harness.plan import named_problem
from harness.submission import shipped_for


@click.command(
    "list", help="Problems (files or names; all without one), their cases, and submissions that ship for them."
)
@click.argument("problems", nargs=-1, metavar="[PROBLEM]...")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(problems: Sequence[str], as_json: bool) -> Callable[[], Exit]:
    return partial(show, problems, as_json)


def show(problems: Sequence[str], as_json: bool) -> Exit:
    """Print them. Raises UsageError for a problem that cannot be loaded."""
    paths = [named_problem(asked) for asked in problems] or sorted(PROBLEMS.glob("*.py"))
    found = [_described(path) for path in paths]
    if as_json:
        print(msgspec.json.encode(found).decode())
        return Exit.ACCEPTED
    for entry in found:
        _print(entry)
    return Exit.ACCEPTED


def _described(path: Path) -> dict[str, Any]:
    from harness.problem import load_problem

    problem = load_problem(path, random_seed=0)
    cases = [{"name": c.name, "shape": c.shape_text, "timed": c.timed} for c in problem.cases]
    files = [path.relative_to(SUBMISSIONS).as_posix() for path in shipped_for(problem.name)]
    return {"problem": problem.name, "cases": cases, "submissions": files}


def _print(entry: dict[str, Any]) -> None:
    print(f"problem {entry['problem']}")
    for case in entry["cases"]:
        print(f"  case        {case['name']:30s} {case['shape']}{'  timed' if case['timed'] else ''}")
    for name in entry["submissions"]:
        print(f"  submission  submissions/{name}")
