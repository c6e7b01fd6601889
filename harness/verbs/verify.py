"""`eval.py verify`: a bundle is judged anew, and whether its claim holds is said."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from harness.again.bundle import Bundle, read_bundle
from harness.again.claim import Answer, Finding, of_all, of_verdict
from harness.again.folder import private_folder, with_commands
from harness.again.running import Shown, judged, show
from harness.again.verifying import Verification, verification
from harness.errors import one_line
from harness.exits import Exit
from harness.plan import Arguments
from harness.report.figures import over_eager
from harness.report.view import console
from harness.storage import cache
from harness.store.rows import model_of
from harness.verbs.shared.judging import how_it_judges, how_it_shows
from harness.verdict import Accepted, Evaluation, status_of

_EXITS = {
    Finding.HOLDS: Exit.ACCEPTED,
    Finding.REJECTED: Exit.REJECTED,
    Finding.FAILS: Exit.CLAIM,
    Finding.UNKNOWN: Exit.HARNESS,
}
_STYLES = {Finding.HOLDS: "bold green", Finding.UNKNOWN: "bold yellow"}


@click.command(
    "verify",
    help="Judge a bundle anew, with its seed and with a fresh one, and say whether its claim holds: the same verdict, "
    "and on the same model of device a speedup that agrees. Nothing is kept. Exits with 0 when it holds, 1 when what "
    "was accepted is rejected, 6 when it does not hold otherwise, and 3 when nothing can be said.",
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--trust-problem", is_flag=True, help="Run the bundle's problem, where problems/ has another or none.")
@how_it_judges
@click.option("--seed", type=int, metavar="N", help="In place of the fresh seed.")
@how_it_shows
def command(bundle: Path, trust_problem: bool, shown: Shown, **given: Any) -> Callable[[], Exit]:
    return partial(verify, bundle, Arguments(**given), shown, trusts_problem=trust_problem)


def verify(path: Path, arguments: Arguments, shown: Shown, *, trusts_problem: bool) -> Exit:
    """Judge and print. Raises UsageError for what is no bundle, and HarnessError where nothing could be judged."""
    bundle = read_bundle(path)
    from harness.environment import describe  # loads torch

    here = describe()
    with cache.in_use(), private_folder() as folder:
        asked = verification(bundle, arguments, folder, trusts_problem=trusts_problem, has_gpu=here["gpu"] is not None)
        for line in _heading(bundle, asked):
            _say(shown, Text(line))
        answer = _answer(bundle, asked, here, shown, partial(_with_its_command, path, trusts_problem))
    for sentence in answer.sentences:
        _say(shown, Text(one_line(sentence)))
    finding = answer.finding
    _say(shown, Text(finding.value.upper(), style=_STYLES.get(finding, "bold red")))
    return _EXITS[finding]


def _answer(
    bundle: Bundle, asked: Verification, here: dict[str, Any], shown: Shown, with_command: Callable[..., Evaluation]
) -> Answer:
    """Judge with one seed after the other, until one is against the claim."""
    found: list[Evaluation] = []
    for plan in asked.plans:
        command = partial(with_command, is_fresh=bool(found))
        outcome = judged(plan, shown, command)
        show(outcome.results, plan, shown)
        found += outcome.results.evaluations
        if outcome.cause:
            raise outcome.cause
        if against := of_verdict(bundle.evaluation, found[-1]):
            return against
    return of_all(bundle, found, here)


def _with_its_command(bundle: Path, trusts_problem: bool, evaluation: Evaluation, *, is_fresh: bool) -> Evaluation:
    """Commands that repeat a case judge the bundle again, whose source lies in no file."""
    words = ["python", "eval.py", "verify", str(bundle), *(["--seed", str(evaluation.seed)] if is_fresh else [])]
    words += ["--trust-problem"] if trusts_problem else []
    return with_commands(evaluation, lambda _: one_line(shlex.join(words)))


def _heading(bundle: Bundle, asked: Verification) -> list[str]:
    """What is claimed, by whom, and what is looked at."""
    claim, there = bundle.evaluation, bundle.environment
    said = status_of(claim) + (f", {claim.reason}" if claim.reason else "")
    if isinstance(claim, Accepted) and claim.geomean_speedup is not None:
        said += f", over eager {over_eager(claim)}"
    lines = [
        f"Claimed: {claim.submission} on {claim.problem}, {claim.device} ({model_of(claim.device, there)}): {said}; "
        f"seed {claim.seed}, {str(there.get('date', 'on an unknown day'))[:10]}, judge {there.get('judge', 'unknown')}",
        f"Of the cases that -k '{asked.plans[0].select}' chooses alone." if asked.plans[0].select else "",
        f"Bundle {bundle.digest}",
        asked.problem_note,
    ]
    device = asked.plans[0].groups[0].device
    if device != claim.device:
        lines.append(f"It was judged on {claim.device}, and is judged on {device} here: the verdict alone is verified.")
    return [one_line(line) for line in lines if line]


def _say(shown: Shown, text: Text) -> None:
    console(sys.stdout, shown.color).print(text, soft_wrap=True)
