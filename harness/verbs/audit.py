"""`eval.py audit PROBLEM`: which lazy answers a problem's cases and error bound would accept."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from harness.errors import UsageError
from harness.exits import Exit
from harness.plan import named_problem
from harness.settings import fresh_seed, sub_seed
from harness.verbs.shared.choosing import chooses_cases
from harness.verbs.shared.completion import problems_like

if TYPE_CHECKING:
    from harness.problem import Case, Problem

# The oracle's copies of inputs and outputs in float64, of which several stand in memory at a time.
BYTES_FOR_AN_ELEMENT = 8 * 10


class Tried(msgspec.Struct, frozen=True):
    """One answer: the cases that would take it, those that would not, and those where it leaves nothing out."""

    answer: str
    passed: list[str]
    failed: list[str]
    right: list[str]

    @property
    def accepted(self) -> bool:
        """Whether a submission that gives it would be accepted."""
        return bool(self.passed) and not self.failed


class Audit(msgspec.Struct, frozen=True):
    """What a problem says to lazy answers. `left_out` are cases that were not audited, each with a sentence."""

    problem: str
    seed: int
    cases: int
    answers: list[Tried]
    left_out: dict[str, str] = {}


@click.command(
    "audit",
    help="Try trivial and lazy answers (zeros, the input, half the rows, fp16 inside, and others) on a problem's "
    "cases, and print which would pass. Exits with 1 when one would pass every case, so that a submission could give "
    "it. Runs on the CPU, on the cases that a CPU judges.",
)
@click.argument("problem", metavar="PROBLEM", shell_complete=problems_like)
@chooses_cases
@click.option("--seed", type=int, metavar="N", help="Repeat a run's data (default: drawn anew).")
@click.option(
    "--memory", type=float, metavar="GIB", help="Leave out cases that need more (default: half of what is free)."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(problem: str, select: str, seed: int | None, memory: float | None, as_json: bool) -> Callable[[], Exit]:
    return partial(run, problem, select, seed, memory, as_json)


def run(name: str, select: str, seed: int | None, memory_gib: float | None, as_json: bool) -> Exit:
    """Audit and print. Raises UsageError for a problem that cannot be loaded or run."""
    from harness.problem import load_problem, select_cases

    if memory_gib is not None and not 0 < memory_gib < math.inf:
        raise UsageError(f"--memory is {memory_gib:g}; it should be a number of GiB, for example 2.5.")
    seed = fresh_seed() if seed is None else seed
    problem = load_problem(named_problem(name), sub_seed(seed, "shapes") % 2**32)
    limit = _half_of_free_bytes() if memory_gib is None else int(memory_gib * 2**30)
    with contextlib.redirect_stdout(sys.stderr):  # the problem's own
        found = audit(problem, select_cases(problem, select), seed, limit)
    print(msgspec.json.encode(found).decode() if as_json else "\n".join(_lines(found)))
    if not found.cases:
        return Exit.NOTHING
    return Exit.REJECTED if any(tried.accepted for tried in found.answers) else Exit.ACCEPTED


def audit(problem: Problem, cases: list[Case], seed: int, limit_bytes: int) -> Audit:
    """Each lazy answer on each of `cases` that has elements and needs at most `limit_bytes`."""
    from harness.device.host import HostDevice
    from harness.device.memory_file import MemoryFile
    from harness.oracle.draw import draw_case
    from harness.oracle.lazy import ANSWERS, Question, is_empty, passes

    device = HostDevice("cpu", MemoryFile())
    said: dict[str, dict[bool | None, list[str]]] = {name: {True: [], False: [], None: []} for name in ANSWERS}
    left_out, earlier, count = {}, None, 0
    for case in cases:
        needed = _bytes_needed(case.on("cpu"))
        if needed > limit_bytes:
            left_out[case.name] = f"needs some {needed / 2**30:.1f} GiB, and {limit_bytes / 2**30:.1f} may be used"
            continue
        drawn = draw_case(problem, case, device, seed)
        if is_empty(drawn):
            left_out[case.name] = "has no elements to compare"
            continue
        count += 1
        earlier = earlier or drawn.expected
        for name, answer in ANSWERS.items():
            said[name][passes(answer, Question(drawn, earlier))].append(case.name)
    answers = [Tried(name, by[True], by[False], by[None]) for name, by in said.items()]
    return Audit(problem.name, seed, count, answers, left_out)


def _bytes_needed(case: Case) -> int:
    return BYTES_FOR_AN_ELEMENT * sum(math.prod(shape) for shape in case.shapes)


def _half_of_free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _lines(found: Audit) -> list[str]:
    width = max(len(tried.answer) for tried in found.answers)
    lines = [f"{found.problem}: {found.cases} cases, seed {found.seed}"]
    for tried in found.answers:
        passed, asked = len(tried.passed), len(tried.passed) + len(tried.failed)
        what = f"passes {passed} of {asked}" if asked else "does not apply"
        which = f": {', '.join(tried.passed[:3])}{', …' if passed > 3 else ''}" if passed else ""
        lines.append(f"  {tried.answer:{width}s}  {what}{which}{'  WOULD BE ACCEPTED' if tried.accepted else ''}")
    lines += [f"  not audited: {name} {why}" for name, why in found.left_out.items()]
    return lines
