"""A run of what was judged before: told, kept if that is asked for, and with commands that repeat it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness.errors import HarnessError, UsageError
from harness.events import Event, Finished, OnEvent
from harness.plan import RunPlan
from harness.report.formats import terminal
from harness.report.progress import listening
from harness.report.view import Color, View, console
from harness.report.workflow import no_commands
from harness.run import RunStopped, run
from harness.store import Keeper
from harness.verdict import Evaluation, Results

Rewrite = Callable[[Evaluation], Evaluation]


@dataclass(frozen=True)
class Shown:
    """How much of a run is shown."""

    color: Color = "auto"
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run gave, what ended it before its end, and why it is not kept, where it is not."""

    results: Results
    cause: UsageError | HarnessError | None = None
    not_kept: str = ""


def _listening(shown: Shown) -> AbstractContextManager[OnEvent]:
    return listening(console(sys.stderr, shown.color), View(quiet=shown.quiet, verbose=shown.verbose))


def judged(plan: RunPlan, shown: Shown, rewrite: Rewrite, db: Path | None = None) -> Outcome:
    """Run a plan, show its progress, and keep what it finds in `db`; `rewrite` changes each evaluation before anybody
    sees it. Raises UsageError and HarnessError where nothing was judged."""
    with no_commands(sys.stderr), _listening(shown) as tell:
        keeper = Keeper(db, plan, tell) if db else None
        listener = keeper or tell

        def rewritten(event: Event) -> None:
            listener(replace(event, evaluation=rewrite(event.evaluation)) if isinstance(event, Finished) else event)

        try:
            results, cause = run(plan, rewritten), None
        except RunStopped as stopped:
            results, cause = stopped.results, stopped.cause
    results = msgspec.structs.replace(results, evaluations=[rewrite(e) for e in results.evaluations])
    return Outcome(results, cause, keeper.failure if keeper else "")


def show(results: Results, plan: RunPlan, shown: Shown) -> None:
    """The terminal's report, on standard output."""
    page = console(sys.stdout, shown.color)
    is_colored = page.color_system is not None and not page.no_color
    view = View(shown.quiet, shown.verbose, plan.settings.check, page.width, is_colored, ranks=False)
    with no_commands(sys.stdout):
        sys.stdout.write(terminal.render(results, view))
