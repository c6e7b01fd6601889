"""The loop of a session: what is saved is judged, and a newer save ends what is judged of the older."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.device.choose import can_time
from harness.errors import HarnessError, one_line
from harness.plan import named_problem
from harness.verdict import Accepted, Evaluation
from harness.watch import keys
from harness.watch.asked import Asked
from harness.watch.child import Outcome
from harness.watch.memory import Memory
from harness.watch.runs import Ended, Failed, Runs, Task
from harness.watch.saves import Saves, looks
from harness.watch.screen import Screen

_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

NO_TIMES = "The emulator gives verdicts and never times. t times what is judged on a GPU or on the CPU."
_DETECTORS = {
    True: "--check is on: in each case all detectors of the emulator watch, which is slower.",
    False: "--check is off.",
}


@dataclass(frozen=True)
class _Look:
    """Something may have been saved."""


@dataclass(frozen=True)
class _Pressed:
    key: str


_Event = Ended | Failed | _Look | _Pressed


@dataclass(frozen=True)
class _Shown:
    """The latest verdicts, those of one run, which keys are about."""

    path: Path
    evaluations: Sequence[Evaluation]


class Session:
    """One watch, from its first verdict until it is stopped."""

    def __init__(self, asked: Asked, screen: Screen) -> None:
        problem = named_problem(asked.problem).resolve() if asked.problem else None
        self._path = asked.path
        self._screen = screen
        self._saves = Saves(asked.path, problem)
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._runs = Runs(asked, screen, self._events.put_nowait)
        self._memory = Memory()
        self._shown: _Shown | None = None

    async def run(self) -> None:
        """Judge what is there, then what is saved, until a key or a signal stops it. Nothing that it has started is
        left, and the terminal is as it was. Raises HarnessError where the system cannot watch the folder."""
        stop = asyncio.Event()
        with keys.one_at_a_time() as terminal, self._stopped_by_signals(), self._keys_of(terminal):
            looking = asyncio.create_task(self._look(stop))
            try:
                self._screen.say(f"Watching {one_line(str(self._path))}. {_how_to_stop(terminal)}")
                await self._serve()
            finally:
                self._screen.clear()
                stop.set()
                await self._runs.end_all()
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
            async for _ in looks(self._path, stop):
                self._events.put_nowait(_Look())
        except (OSError, RuntimeError) as error:  # watchfiles raises both
            self._events.put_nowait(Failed(HarnessError(f"{self._path} cannot be watched: {error}.")))

    async def _serve(self) -> None:
        self._judge_what_changed()
        while True:
            await self._runs.begin_next()
            match await self._events.get():
                case _Pressed(keys.STOP):
                    return
                case _Pressed(key):
                    self._press(key)
                case Failed(error):
                    raise error
                case Ended(task, outcome):
                    self._show(task, outcome)
                case _Look():
                    await self._runs.end_of(self._judge_what_changed())

    def _judge_what_changed(self) -> list[Path]:
        """Have what was saved judged; returns it."""
        changed = self._saves.changed()
        for path in changed:
            self._runs.ask_for(path, timed=False)
        return changed

    # ------------------------------------------------------------------ verdicts

    def _show(self, task: Task, outcome: Outcome) -> None:
        seconds = time.monotonic() - task.since_s
        evaluations = outcome.results.evaluations if outcome.results else []
        if not evaluations:
            said = outcome.said or [f"eval.py ended with {outcome.code} and gave no verdict."]
            self._screen.show_unjudged(one_line(task.path.stem), seconds, said)
            if not task.path.exists():  # its editor was about to put it there
                self._saves.forget(task.path)
            return
        self._shown = _Shown(task.path, evaluations)
        for evaluation in evaluations:
            found = self._memory.add(task.path, evaluation)
            self._screen.show(evaluation, seconds, found, names_problem=len(evaluations) > 1)

    # ------------------------------------------------------------------ keys

    def _press(self, key: str) -> None:
        if key in keys.HELP:
            self._screen.say(f"Keys: {keys.SAID}.")
        elif key == keys.CHECK:
            self._runs.check = not self._runs.check
            self._screen.say(_DETECTORS[self._runs.check])
        elif key in (keys.TIME, keys.FAILING, keys.AGAIN):
            if self._shown:
                self._press_of_verdict(key, self._shown)
            else:
                self._screen.say("There is no verdict yet.")

    def _press_of_verdict(self, key: str, shown: _Shown) -> None:
        if key == keys.AGAIN:
            self._runs.ask_for(shown.path, timed=False)
        elif key == keys.TIME:
            self._time(shown)
        elif wrong := [evaluation for evaluation in shown.evaluations if not isinstance(evaluation, Accepted)]:
            for evaluation in wrong:
                self._screen.show_report(evaluation)
        else:
            self._screen.say("No case fails.")

    def _time(self, shown: _Shown) -> None:
        if not any(can_time(evaluation.device) for evaluation in shown.evaluations):
            self._screen.say(NO_TIMES)
        elif not any(isinstance(evaluation, Accepted) for evaluation in shown.evaluations):
            self._screen.say("What is wrong is not timed.")
        else:
            self._screen.say("It is being timed.")
            self._runs.ask_for(shown.path, timed=True)


def _how_to_stop(terminal: int | None) -> str:
    return "Ctrl-C stops it." if terminal is None else f"Keys: {keys.SAID}."
