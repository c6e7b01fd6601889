"""Runs of eval.py, one at a time: those that wait, the one that is under way, and a process that is loaded for the
next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.device.choose import choose_device
from harness.errors import HarnessError, UsageError, one_line
from harness.submission import read_submission
from harness.watch.asked import Asked
from harness.watch.child import Child, Outcome
from harness.watch.screen import Screen


@dataclass(frozen=True)
class Task:
    """A file that is to be judged."""

    path: Path
    timed: bool
    since_s: float
    """When it was saved or a key was pressed, by time.monotonic."""


@dataclass(frozen=True)
class Ended:
    """A run has come to its end."""

    task: Task
    outcome: Outcome


@dataclass(frozen=True)
class Failed:
    """The session cannot go on."""

    error: Exception


@dataclass(frozen=True)
class _Running:
    """What is judged now."""

    task: Task
    child: Child
    told: asyncio.Task[None]


class Runs:
    """A run for each task. How a run ends is told; of one that is ended before its end nothing is."""

    def __init__(self, asked: Asked, screen: Screen, tell: Callable[[Ended | Failed], None]) -> None:
        self.check = asked.check
        """Whether further runs have all detectors."""
        self._asked = asked
        self._screen = screen
        self._tell = tell
        self._waiting: list[Task] = []
        self._running: _Running | None = None
        self._spare: Child | None = None
        self._latest = asked.path
        self._noticed: list[str] = []
        """What the latest run noticed, which is not said again where the next one does."""

    def ask_for(self, path: Path, *, timed: bool) -> None:
        """Have a file judged when its turn comes, instead of what was asked for it before."""
        self._waiting = [task for task in self._waiting if task.path != path]
        self._waiting.append(Task(path, timed, time.monotonic()))

    async def end_of(self, paths: Sequence[Path]) -> None:
        """End what is judged of an older state of these."""
        if self._running and self._running.task.path in paths:
            await self._end_running()

    async def end_all(self) -> None:
        await self._end_running()
        if self._spare:
            await self._spare.end()

    async def _end_running(self) -> None:
        if self._running:
            running, self._running = self._running, None
            await running.child.end()
            await running.told

    async def begin_next(self) -> None:
        """Begin the next run, where none is under way. Where nothing waits, one is loaded for the next save: beside a
        run that would take time from it."""
        if self._running:
            return
        if self._waiting:
            self._latest = self._waiting[0].path
        child = self._spare or await self._ahead()
        self._spare = None if self._waiting else child
        if self._waiting:
            task = self._waiting.pop(0)
            self._screen.begin(one_line(task.path.stem))
            self._running = _Running(task, child, asyncio.create_task(self._judge(task, child)))

    async def _ahead(self) -> Child:
        return await Child.ahead(_device_of(self._latest, self._asked.device), self._asked.isolation)

    async def _judge(self, task: Task, child: Child) -> None:
        before, self._noticed = self._noticed, []

        def notice(line: str) -> None:
            self._noticed.append(line)
            if line not in before:
                self._screen.say(line)

        try:
            outcome = await child.judge(self._words(task), notice)
        except Exception as error:  # the loop raises it, which otherwise would wait for a verdict
            self._tell(Failed(error))
            return
        if outcome is not None:
            self._running = None
            self._tell(Ended(task, outcome))

    def _words(self, task: Task) -> list[str]:
        of_times = self._asked.words_of_times if task.timed else ("--no-timing",)
        return [*self._asked.words, *of_times, *(["--check"] if self.check else []), "--", str(task.path)]


def _device_of(path: Path, asked: str | None) -> str:
    """On which a submission will be judged; what is no submission yet says nothing."""
    try:
        return choose_device(asked, read_submission(path))
    except (HarnessError, UsageError):
        return asked or "cpu"
