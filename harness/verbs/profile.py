"""`eval.py profile`: one case of a submission under Nsight Compute, or where it cannot look under torch.profiler."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.device.choose import choose_device
from harness.errors import HarnessError, SubmissionError
from harness.exits import Exit
from harness.plan import named_problem, problem_of
from harness.report.view import Color, console
from harness.report.workflow import no_commands
from harness.settings import fresh_seed, sub_seed
from harness.storage import cache
from harness.submission import read_submission

SUFFIX = ".ncu-rep"


@dataclass(frozen=True)
class Asked:
    """The options of this verb."""

    path: Path
    problem: str | None
    device: str | None
    select: str
    seed: int | None
    out: Path | None
    color: Color


@click.command(
    "profile",
    help="Run one case of a submission under Nsight Compute, or where it cannot look under torch.profiler. The "
    "submission runs as a program of yours, without the judge's isolation.",
)
@click.argument("path", type=click.Path(path_type=Path), metavar="SUBMISSION")
@click.option(
    "--problem", metavar="PROBLEM", help="A problem file, or the name of one in problems/ (default: by folder)."
)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Insist on a device.")
@click.option(
    "-k",
    "select",
    metavar="CASE",
    default="",
    help="The first case whose name contains CASE (default: the first timed one).",
)
@click.option("--seed", type=int, metavar="N", help="Repeat a run's data (default: drawn anew).")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the full report goes (default: beside you, NAME-CASE.ncu-rep).",
)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def command(**given: Any) -> Callable[[], Exit]:
    return partial(run, Asked(**given))


def run(asked: Asked) -> Exit:
    """Profile and print. Raises UsageError and HarnessError."""
    with cache.in_use():
        return _run(asked)


def _run(asked: Asked) -> Exit:
    submission = read_submission(asked.path)
    path = problem_of(submission.path) if asked.problem is None else named_problem(asked.problem)
    device = choose_device(asked.device, submission)
    if device == "emulator":
        of_problem = "" if asked.problem is None else f" --problem {shlex.quote(asked.problem)}"
        raise HarnessError(
            "There is no GPU here, and an emulation's times mean nothing. For counts of bytes, sectors and bank "
            f"conflicts: eval.py {shlex.quote(str(asked.path))}{of_problem} --device emulator --check -v"
        )
    # These load torch, which is waited for only when there is something to profile.
    from harness.problem import load_problem, select_cases
    from harness.report.profile import print_profile
    from harness.tools.profiling import profile

    seed = fresh_seed() if asked.seed is None else asked.seed
    problem = load_problem(path, sub_seed(seed, "shapes") % 2**32)
    chosen = select_cases(problem, asked.select)
    case = chosen[0] if asked.select else next((case for case in chosen if case.timed), chosen[0])
    name = re.sub(r"[^0-9A-Za-z]+", "-", f"{submission.name}-{case.name}").strip("-")
    report = _named(asked.out or Path(name)).resolve()
    try:
        found = profile(submission, problem, case.on(device), device, seed, report)
    except SubmissionError as error:
        with contextlib.suppress(OSError), no_commands(sys.stderr):  # the code says it, too
            print(f"eval.py: {submission.name} cannot be profiled: {error.message}", file=sys.stderr)
        return Exit.REJECTED
    with no_commands(sys.stdout):
        print_profile(console(sys.stdout, asked.color), found)
    return Exit.ACCEPTED


def _named(report: Path) -> Path:
    """ncu writes to a file of this suffix, whatever it is told."""
    return report if report.suffix == SUFFIX else report.with_name(report.name + SUFFIX)
