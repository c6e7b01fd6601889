"""A run's evaluations go into the store as they are finished, each before anybody is told of it; and the texts that
they are of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.events import Event, Finished, OnEvent
from harness.plan import RunPlan
from harness.store.database import open_store
from harness.verdict import Accepted, Evaluation


class Keeper:
    """Keeps what is finished and passes every event on. What cannot be kept costs no verdict: `failure` says why. Who
    was stopped while it was timed is not kept: the next run judges it anew."""

    def __init__(self, path: Path, plan: RunPlan, tell: OnEvent) -> None:
        self.failure = ""
        self._path = path
        self._plan = plan
        self._tell = tell
        self._environment: dict[str, Any] = {}
        self._problems = {group.problem for group in plan.groups}
        # Of ten thousand submissions one is read when it is judged.
        self._files = {each.sha256: each.path for group in plan.groups for each in group.submissions}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Finished) and not self.failure and not _was_stopped(event.evaluation):
            try:
                self._keep(event.evaluation, event.environment or self._described())
            except (HarnessError, UsageError) as error:
                self.failure = f"The evaluations are not kept: {error}"
        self._tell(event)

    def _keep(self, evaluation: Evaluation, environment: Mapping[str, Any]) -> None:
        with open_store(self._path) as store:  # not for the whole run: what it starts would inherit the file
            store.add([evaluation], environment, self._texts(evaluation), plain=self._plan.is_plain)

    def _texts(self, evaluation: Evaluation) -> dict[str, bytes]:
        """What it is of, as far as its files still hold that."""
        paths = [self._files[sha256] for sha256 in [evaluation.source_sha256] if sha256 in self._files]
        wanted = {evaluation.source_sha256, evaluation.problem_sha256}
        return {sha256: text for sha256, text in _texts([*self._problems, *paths]).items() if sha256 in wanted}

    def _described(self) -> dict[str, Any]:
        """The machine and versions; the date is that of the first evaluation."""
        if not self._environment:
            from harness.environment import describe

            isolation = {device: chosen.describe() for device, chosen in self._plan.isolation.items()}
            self._environment = describe() | {"isolation": isolation}
        return self._environment


def _was_stopped(evaluation: Evaluation) -> bool:
    return isinstance(evaluation, Accepted) and evaluation.was_stopped


def texts_of(plan: RunPlan) -> dict[str, bytes]:
    """What the files of submissions and problems hold now, by its SHA-256: one that changed since it was judged has
    another."""
    submissions = [submission.path for group in plan.groups for submission in group.submissions]
    return _texts([*(group.problem for group in plan.groups), *submissions])


def _texts(paths: Iterable[Path]) -> dict[str, bytes]:
    texts = [path.read_bytes() for path in dict.fromkeys(paths) if path.is_file()]
    return {hashlib.sha256(text).hexdigest(): text for text in texts}
