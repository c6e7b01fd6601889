"""`eval.py withdraw`: a submission loses its rank, and everybody sees why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from harness.errors import UsageError
from harness.exits import Exit
from harness.paths import results_db
from harness.store import history, open_store
from harness.store.pairs import SHOWN_DIGITS
from harness.verbs.shared.database import existing, of_file


@click.command("withdraw", help="Take a submission's rank and say why; what was measured stays visible.")
@click.argument("submission")
@click.option("--problem", metavar="NAME", required=True, help="On whose boards.")
@click.option("--reason", metavar="TEXT", required=True, help="Why, in a sentence.")
@of_file
def command(submission: str, problem: str, reason: str, db: Path | None) -> Callable[[], Exit]:
    return partial(take_back, submission, problem, reason, db or results_db())


def take_back(submission: str, problem: str, reason: str, db: Path) -> Exit:
    """Withdraw it. Raises UsageError without a reason, and where the name is of several sources, or of none."""
    if not reason.strip():
        raise UsageError("--reason is empty. Say in a sentence why the rank is taken: everybody sees it.")
    with open_store(existing(db)) as store:
        sources = sorted({stored.evaluation.source_sha256 for stored in history(store, submission, problem)})
        if len(sources) != 1:
            which = f"several sources: {', '.join(s[:SHOWN_DIGITS] for s in sources)}; give the beginning of one"
            raise UsageError(f"'{submission}' has {which if sources else f'no evaluation on {problem}'} in {db}.")
        store.withdraw(sources[0], problem, reason, datetime.now(UTC).isoformat(timespec="seconds"))
    print(f"Withdrawn on {problem}: {submission}, source {sources[0][:SHOWN_DIGITS]}.")
    return Exit.ACCEPTED
