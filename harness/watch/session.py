"""The loop of a session: what is saved is judged, and a newer save ends what is judged of the older."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.device.choose import can_time, choose_device
from harness.errors import HarnessError, UsageError, one_line
from harness.plan import named_problem
from harness.submission import read_submission
from harness.verdict import Accepted, Evaluation
from harness.watch import keys
from harness.watch.changes import Change, change_of_times, changes
from harness.watch.child import Child, Outcome
from harness.watch.saves import Saves, looks
from harness.watch.screen import Screen

_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

NO_TIMES = "The emulator gives verdicts and never times. t times what is judged on a GPU or on the CPU."
_DETECTORS = {
    True: "--check is on: in each case all detectors of the emulator watch, which is slower.",
    False: "--check is off.",
}


@dataclass(frozen=True)
class Asked:
    """What a session judges, and how."""

    path: Path
    """A submission, or a folder of them."""
    problem: str | None = None
    device: str | None = None
    isolation: str = "auto"
    check: bool = False
    words: tuple[str, ...] = ()
    """Options of eval.py for every run."""
    words_of_times: tuple[str, ...] = ()
    """Those for runs that time alone."""


@dataclass(frozen=True)
class _Task:
    """A file that is to be judged."""

    path: Path
    timed: bool
    since_s: float
    """When it was saved or a key was pressed, by time.monotonic."""


@dataclass(frozen=True)
class _Running:
    """What is judged now."""

    task: _Task
    child: Child
    told: asyncio.Task[None]


@dataclass(frozen=True)
class _Ended:
    """A run has come to its end."""

    task: _Task
    outcome: Outcome


@dataclass(frozen=True)
class _Look:
    """Something may have been saved."""


@dataclass(frozen=True)
class _Failed:
    """The session cannot go on."""

    error: Exception


@dataclass(frozen=True)
class _Pressed:
    key: str


_Event = _Ended | _Look | _Failed | _Pressed
# A submission's file, its problem, and the device.
_Judged = tuple[Path, str, str]


@dataclass
class _Memory:
    """What was said of a submission."""

    last: Evaluation
    last_timed: Accepted | None = None


@dataclass
class Session:
    """One watch, from its first verdict until it is stopped."""

    asked: Asked
    screen: Screen
    _check: bool = field(init=False)
    _saves: Saves = field(init=False)
    _events: asyncio.Queue[_Event] = field(default_factory=asyncio.Queue)
    _waiting: list[_Task] = field(default_factory=list)
    _running: _Running | None = None
    _spare: Child | None = None
    _memory: dict[_Judged, _Memory] = field(default_factory=dict)
    _shown: list[_Judged] = field(default_factory=list)
    """What the latest verdict was on, which keys are about."""

    _noticed: list[str] = field(default_factory=list)
    """What the latest run noticed, which is not said again where the next one does."""

    def __post_init__(self) -> None:
        self._check = self.asked.check
        problem = named_problem(self.asked.problem).resolve() if self.asked.problem else None
        self._saves = Saves(self.asked.path, problem)

    async def run(self) -> None:
        """Judge what is there, then what is saved, until a key or a signal stops it. Nothing that it has started is
        left, and the terminal is as it was. Raises HarnessError where the system cannot watch the folder."""
        stop = asyncio.Event()
        with keys.one_at_a_time() as terminal, self._stopped_by_signals(), self._keys_of(terminal):
            looking = asyncio.create_task(self._look(stop))
            try:
                self.screen.say(f"Watching {one_line(str(self.asked.path))}. {_how_to_stop(terminal)}")
                await self._serve()
            finally:
                self.screen.clear()
                stop.set()
                await self._end_all()
                await looking

    # ------------------------------------------------------------------ events

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _STOPPED_BY:
            loop.add_signal_handler(number, self._events.put_nowait, _Pressed(keys.STOP))
        try:
            yield
        finally:
            for number in _STOPPED_BY:
                loop.remove_signal_handler(number)

    @contextlib.contextmanager
    def _keys_of(self, terminal: int | None) -> Iterator[None]:
        if terminal is None:
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(terminal, self._read_keys, terminal)
        try:
            yield
        finally:
            loop.remove_reader(terminal)

    def _read_keys(self, terminal: int) -> None:
        for key in keys.pressed(terminal):
            self._events.put_nowait(_Pressed(key))

    async def _look(self, stop: asyncio.Event) -> None:
        try:
            async for _ in looks(self.asked.path, stop):
                self._events.put_nowait(_Look())
        except (OSError, RuntimeError) as error:  # watchfiles raises both
            self._events.put_nowait(_Failed(HarnessError(f"{self.asked.path} cannot be watched: {error}.")))

    async def _serve(self) -> None:
        self._judge_what_changed()
        while True:
            await self._begin_next()
            match await self._events.get():
                case _Pressed(keys.STOP):
                    return
                case _Pressed(key):
                    self._press(key)
                case _Failed(error):
                    raise error
                case _Ended(task, outcome):
                    self._running = None
                    self._show(task, outcome)
                case _Look():
                    await self._end_what_is_old(self._judge_what_changed())

    # ------------------------------------------------------------------ runs

    def _judge_what_changed(self) -> list[Path]:
        """Have what was saved judged; returns it."""
        changed = self._saves.changed()
        for path in changed:
            self._judge(path, timed=False)
        return changed

    def _judge(self, path: Path, *, timed: bool) -> None:
        self._waiting = [task for task in self._waiting if task.path != path]
        self._waiting.append(_Task(path, timed, time.monotonic()))

    async def _end_what_is_old(self, changed: list[Path]) -> None:
        if self._running and self._running.task.path in changed:
            await self._end_running()

    async def _end_running(self) -> None:
        if self._running:
            running, self._running = self._running, None
            await running.child.end()
            await running.told

    async def _end_all(self) -> None:
        await self._end_running()
        if self._spare:
            await self._spare.end()

    async def _begin_next(self) -> None:
        """Begin the next run, where none is under way. Where nothing waits, one is loaded for the next save: beside a
        run that would take time from it."""
        if self._running:
            return
        child = self._spare or await self._ahead()
        self._spare = None if self._waiting else child
        if self._waiting:
            task = self._waiting.pop(0)
            self.screen.begin(one_line(task.path.stem))
            self._running = _Running(task, child, asyncio.create_task(self._tell(task, child)))

    async def _ahead(self) -> Child:
        path = self._waiting[0].path if self._waiting else self._shown[0][0] if self._shown else self.asked.path
        return await Child.ahead(_device_of(path, self.asked.device), self.asked.isolation)

    async def _tell(self, task: _Task, child: Child) -> None:
        before, self._noticed = self._noticed, []

        def notice(line: str) -> None:
            self._noticed.append(line)
            if line not in before:
                self.screen.say(line)

        try:
            outcome = await child.judge(self._words(task), notice)
        except Exception as error:  # the loop raises it, which otherwise would wait for a verdict
            self._events.put_nowait(_Failed(error))
        else:
            if outcome is not None:
                self._events.put_nowait(_Ended(task, outcome))

    def _words(self, task: _Task) -> list[str]:
        of_times = self.asked.words_of_times if task.timed else ("--no-timing",)
        return [*self.asked.words, *of_times, *(["--check"] if self._check else []), "--", str(task.path)]

    # ------------------------------------------------------------------ verdicts

    def _show(self, task: _Task, outcome: Outcome) -> None:
        seconds = time.monotonic() - task.since_s
        evaluations = outcome.results.evaluations if outcome.results else []
        if not evaluations:
            said = outcome.said or [f"eval.py ended with {outcome.code} and gave no verdict."]
            self.screen.show_unjudged(one_line(task.path.stem), seconds, said)
            if not task.path.exists():  # its editor was about to put it there
                self._saves.forget(task.path)
            return
        self._shown = [(task.path, evaluation.problem, evaluation.device) for evaluation in evaluations]
        for judged, evaluation in zip(self._shown, evaluations, strict=True):
            found = self._remember(judged, evaluation)
            self.screen.show(evaluation, seconds, found, names_problem=len(evaluations) > 1)

    def _remember(self, judged: _Judged, evaluation: Evaluation) -> list[Change]:
        """What changed since the last verdict, and, where it was timed, since the last times."""
        memory = self._memory.get(judged)
        found = changes(memory.last, evaluation) if memory else []
        timed = evaluation if isinstance(evaluation, Accepted) and evaluation.geomean_speedup is not None else None
        last_timed = memory.last_timed if memory else None
        if timed and last_timed:
            found.append(_change_of_times(last_timed, timed))
        self._memory[judged] = _Memory(evaluation, timed or last_timed)
        return found

    # ------------------------------------------------------------------ keys

    def _press(self, key: str) -> None:
        if key in keys.HELP:
            self.screen.say(f"Keys: {keys.SAID}.")
        elif key == keys.CHECK:
            self._check = not self._check
            self.screen.say(_DETECTORS[self._check])
        elif key in (keys.TIME, keys.FAILING, keys.AGAIN):
            if self._shown:
                self._press_of_verdict(key, self._shown)
            else:
                self.screen.say("There is no verdict yet.")

    def _press_of_verdict(self, key: str, shown: list[_Judged]) -> None:
        """Keys that are about the latest verdict."""
        path = shown[0][0]
        latest = [self._memory[judged].last for judged in shown]
        if key == keys.AGAIN:
            self._judge(path, timed=False)
        elif key == keys.TIME:
            self._time(path, latest)
        elif wrong := [evaluation for evaluation in latest if not isinstance(evaluation, Accepted)]:
            for evaluation in wrong:
                self.screen.show_report(evaluation)
        else:
            self.screen.say("No case fails.")

    def _time(self, path: Path, latest: list[Evaluation]) -> None:
        if not any(can_time(evaluation.device) for evaluation in latest):
            self.screen.say(NO_TIMES)
        elif not any(isinstance(evaluation, Accepted) for evaluation in latest):
            self.screen.say("What is wrong is not timed.")
        else:
            self.screen.say("It is being timed.")
            self._judge(path, timed=True)


def _how_to_stop(terminal: int | None) -> str:
    return "Ctrl-C stops it." if terminal is None else f"Keys: {keys.SAID}."


def _device_of(path: Path, asked: str | None) -> str:
    """On which a submission will be judged; what is no submission yet says nothing."""
    try:
        return choose_device(asked, read_submission(path))
    except (HarnessError, UsageError):
        return asked or "cpu"


def _change_of_times(before: Accepted, after: Accepted) -> Change:
    from harness.watch.times import how_it_differs  # scipy.stats takes a second to load

    return change_of_times(before, after, how_it_differs(before, after))
