"""Holding a worker still while something else is timed."""

from __future__ import annotations

import signal
import time

from harness.errors import SubmissionError
from harness.isolation import processes
from harness.isolation.family import Family
from harness.reasons import Reason

# Threads that wait for a core may take so long to stop, and are looked at so often.
STOP_TIMEOUT_S, STOP_LOOK_S = 5.0, 0.0005

# Processor time that a process may use while it is held. One that stands still uses none (0.0 us in each of 111 holds
# with both cores busy); this is less than it takes to start a process that works instead.
HELD_PROCESSOR_S = 1e-4

# How long to wait, where the system does not say that threads have left their processors: two ticks of the slowest
# kernels. By then what a thread used is in its process's books, unless a host has taken the processor away.
SETTLING_S = 0.02


class Hold:
    """Stops a family with all that it started, and finds out whether it stood still."""

    def __init__(self, family: Family, own_processes: int) -> None:
        """`own_processes` is how many the family has before a submission starts any."""
        self._family = family
        self._own_processes = own_processes
        self._stopped: set[int] = set()
        self._stopped_before: frozenset[int] = frozenset()
        self._started_before: int | None = None
        self._processor_s: dict[int, float] = {}

    def pause(self) -> None:
        """Stop everything until `resume`. Raises SubmissionError when it has processes of its own, or does not stop."""
        if not self._stops_as_before():
            self._stop_everything()
        self._wait_until_stopped()
        self._processor_s = self._settled_processor_s()

    def resume(self) -> None:
        """Let go on what `pause` stopped. Raises SubmissionError when it ran meanwhile: a process can have itself
        continued, for example by a timer of the kernel."""
        if not self._stopped:
            return
        now_s = self._settled_processor_s()
        used_s = {pid: now_s.get(pid, 0.0) - before_s for pid, before_s in self._processor_s.items()}
        ran = {pid for pid, seconds in used_s.items() if seconds > HELD_PROCESSOR_S}
        if ran := ran - processes.zombies(ran):  # a dying process uses some, too
            used_ms = 1e3 * max(used_s[pid] for pid in ran)
            raise _went_on(f"and used {used_ms:.3g} ms of the processors meanwhile")
        processes.send(self._stopped, signal.SIGCONT)
        self._stopped = set()

    def require_alone(self) -> None:
        """Raises SubmissionError when processes that it started are still there, or hand on to another as they end."""
        seen = set(self._family.everything())
        living = seen - processes.zombies(seen)
        self._require_no_more_than_own(living | set(self._family.everything()) - seen)

    def processor_s(self, pid: int) -> float:
        """Processor time in seconds that `pid` has used so far, with what was stopped last."""
        return sum(processes.processor_s({pid, *self._stopped, *self._stopped_before}).values())

    def _settled_processor_s(self) -> dict[int, float]:
        """Processor time of each process that is stopped, with all that its threads used until they stood still."""
        if not processes.have_left_processors(self._stopped):
            time.sleep(SETTLING_S)
        return processes.processor_s(self._stopped)

    def _stops_as_before(self) -> bool:
        """Stop what `pause` stopped last time. True when that is everything: the machine has started nothing since.

        Reading the tree of processes instead takes milliseconds, in each of hundreds of rounds."""
        started = processes.started_so_far()
        if started is None or not self._stopped_before or started != self._started_before:
            return False
        processes.send(self._stopped_before, signal.SIGSTOP)
        self._stopped = set(self._stopped_before)
        return processes.started_so_far() == started

    def _stop_everything(self) -> None:
        started = processes.started_so_far()
        self._stopped = stopped = set[int]()
        while fresh := set(self._family.everything()) - stopped:  # looks again for what was started meanwhile
            processes.send(fresh, signal.SIGSTOP)
            stopped |= fresh
        self._require_no_more_than_own(stopped - processes.zombies(stopped))
        self._stopped_before, self._started_before = frozenset(stopped), started

    def _require_no_more_than_own(self, living: set[int]) -> None:
        extra = len(living) - self._own_processes
        if extra > 0:
            raise SubmissionError(
                Reason.EXTRA_PROCESSES,
                f"{extra} processes that it started were still running. They slow whatever else is timed, and nothing "
                "sees what they call; end them before the file is loaded and before __init__ returns.",
            )

    def _wait_until_stopped(self) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not processes.all_stopped(self._stopped):
            if time.monotonic() > deadline:
                raise _went_on(f"and did not stand still within {STOP_TIMEOUT_S:g} s")
            time.sleep(STOP_LOOK_S)


def _went_on(how: str) -> SubmissionError:
    return SubmissionError(
        Reason.RAN_WHILE_HELD,
        f"It was stopped while others were timed, {how}. Nothing of it may run between its calls.",
    )
