"""How far a run of several submissions is, for the line that a terminal shows while it lasts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from harness.events import Building, DeviceTaken, Event, Finished, Judging, Queued, Sanitizing, Timing


class State(StrEnum):
    """What becomes of a submission that is under way; in the order in which they are shown."""

    BUILDING = "building"
    WAITING = "waiting"
    JUDGING = "judging"
    TIMING = "timing"


# A submission, and the problem that it is judged on.
Judged = tuple[str, str]

# In these a submission may run on its device.
_ON_DEVICE = {State.JUDGING, State.TIMING}


class SoFar:
    """Puts in front of each step how many are judged, when the rest may be, what is done with those that are under way
    side by side, and how much of the time no submission ran on the GPU."""

    def __init__(self, show: Callable[[str], None], gpus: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """`gpus` are used by the run, and `clock` tells seconds."""
        self._show = show
        self._gpus = gpus
        self._clock = clock
        self._started_s = self._since_s = clock()
        self._used_s = 0.0
        self._count = 0
        self._done = 0
        self._on_gpu: set[Judged] = set()
        self._states: dict[Judged, State] = {}

    def count(self, event: Event) -> None:
        match event:
            case Queued():
                self._count += 1
                if event.device == "cuda":
                    self._on_gpu.add((event.submission, event.problem))
            case Building():
                self._enter(event, State.BUILDING)
            case DeviceTaken():
                self._enter(event, State.WAITING)
            case Judging() | Sanitizing():
                self._enter(event, State.JUDGING)
            case Timing():
                self._enter(event, State.TIMING)
            case Finished():
                self._done += 1
                self._leave(event.evaluation.submission, event.evaluation.problem)

    def _enter(self, event: Building | DeviceTaken | Judging | Sanitizing | Timing, state: State) -> None:
        self._leave(event.submission, event.problem)
        self._states[event.submission, event.problem] = state

    def _leave(self, submission: str, problem: str) -> None:
        self._count_time()
        self._states.pop((submission, problem), None)

    def _count_time(self) -> None:
        """Until now all are in the state that is noted."""
        now_s = self._clock()
        running = sum(judged in self._on_gpu and state in _ON_DEVICE for judged, state in self._states.items())
        self._used_s += (now_s - self._since_s) * min(running, self._gpus)
        self._since_s = now_s

    def show(self, step: str) -> None:
        if self._count < 2:
            self._show(step)
            return
        elapsed_s = self._clock() - self._started_s
        left_s = elapsed_s * (self._count - self._done) / max(self._done, 1)
        left = f", {_about(left_s)} left" if self._done else ""
        parts = [f"{self._done} of {self._count} judged{left}", self._side_by_side(), self._unused(), step]
        self._show(" · ".join(filter(None, parts)))

    def _side_by_side(self) -> str:
        """'2 building, 1 timing', where there are several: what one alone does is the step."""
        found = Counter(self._states.values())
        return ", ".join(f"{found[state]} {state}" for state in State if found[state]) if len(self._states) > 1 else ""

    def _unused(self) -> str:
        """The share of the time, of all GPUs, in which no submission was judged or timed on them; they may be idle for
        more. Nothing before the first was."""
        self._count_time()
        if not self._used_s:
            return ""
        unused = 1 - self._used_s / (self._gpus * (self._since_s - self._started_s))
        return f"{'GPU' if self._gpus == 1 else f'{self._gpus} GPUs'} unused {unused:.0%}"


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {seconds:.0f} s"
