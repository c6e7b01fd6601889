"""A run's evaluations go into the store as they are finished, each before anybody is told of it; and the texts that
they are of."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.events import Event, Finished, OnEvent
from harness.plan import RunPlan
from harness.store.database import open_store
from harness.verdict import Evaluation


class Keeper:
    """Keeps what is finished and passes every event on. What cannot be kept costs no verdict: `failure` says why."""

    def __init__(self, path: Path, plan: RunPlan, tell: OnEvent) -> None:
        self.failure = ""
        self._path = path
        self._plan = plan
        self._tell = tell
        self._environment: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Finished) and not self.failure:
            try:
                self._keep(event.evaluation)
            except (HarnessError, UsageError) as error:
                self.failure = f"The evaluations are not kept: {error}"
        self._tell(event)

    def _keep(self, evaluation: Evaluation) -> None:
        with open_store(self._path) as store:  # not for the whole run: what it starts would inherit the file
            store.add([evaluation], self._described(), _of(evaluation, texts_of(self._plan)))

    def _described(self) -> dict[str, Any]:
        """The machine and versions; the date is that of the first evaluation."""
        if not self._environment:
            from harness.environment import describe

            isolation = {device: chosen.describe() for device, chosen in self._plan.isolation.items()}
            self._environment = describe() | {"isolation": isolation}
        return self._environment


def texts_of(plan: RunPlan) -> dict[str, bytes]:
    """What the files of submissions and problems hold now, by its SHA-256: one that changed since it was judged has
    another."""
    paths = {group.problem for group in plan.groups}
    paths |= {submission.path for group in plan.groups for submission in group.submissions}
    texts = [path.read_bytes() for path in paths if path.is_file()]
    return {hashlib.sha256(text).hexdigest(): text for text in texts}


def _of(evaluation: Evaluation, texts: dict[str, bytes]) -> dict[str, bytes]:
    """The texts that an evaluation is of."""
    wanted = {evaluation.source_sha256, evaluation.problem_sha256}
    return {sha256: text for sha256, text in texts.items() if sha256 in wanted}
