"""A worker's process with all that it started, and how it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable

import psutil

from harness.errors import HarnessError
from harness.isolation import processes
from harness.isolation.launch import Process

# A family that starts processes while it is being ended is ended again; a fork bomb takes a few passes.
ENDING_PASSES = 200

# A process that was killed ends within milliseconds; one that takes longer is traced, or gives gigabytes back.
ENDING_LOOK_S = 0.5

# A worker that has closed its connection to the judge gets so long to end by itself.
EXIT_TIMEOUT_S = 5.0


class Family:
    """The processes of one worker: its own, their descendants, and the orphans that these leave to the judge."""

    def __init__(self, process: Process, living: Callable[[], Iterable[Family]]) -> None:
        """`living` gives the families of all workers of this process: what they lead is nobody's orphan."""
        self._process = process
        self._living = living

    @property
    def exists(self) -> bool:
        """Whether its process was started at all; waits until that is known."""
        try:
            return self._process.pid > 0
        except HarnessError:
            return False

    def members(self, at_most: int = 1 << 20) -> list[int]:
        """The process and its descendants; counting ends once there are more than `at_most`."""
        return processes.family(self._process.pid, at_most)

    def everything(self) -> list[int]:
        """The members, and the orphans with their descendants."""
        return self.members() + [pid for orphan in self._orphans() for pid in processes.family(orphan)]

    def exit_code(self) -> int | None:
        """How its process ended, negative for a signal; None when it does not end within EXIT_TIMEOUT_S."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=EXIT_TIMEOUT_S)
        return self._process.poll()

    def kill(self) -> None:
        """Kill its group and wait for nothing; `end` does the rest."""
        with contextlib.suppress(ProcessLookupError, PermissionError, HarnessError):  # it may never have been started
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill its group, its descendants and its orphans, and wait until they are gone."""
        if not self.exists:
            return
        members = self.members()
        self.kill()
        processes.send(members, signal.SIGKILL)
        self._wait_for_its_end()
        self._end_orphans()

    def _orphans(self) -> list[int]:
        # A worker that is being forked looks like an orphan until its number is known: `exists` waits for that.
        others = {family._process.pid for family in {*self._living()} - {self} if family.exists}
        # Each leads a session. What one that has ended leaves for a moment, as bubblewrap does with the first process
        # of a private tree, is its own, and must not be taken for this one's.
        return processes.adopted(keep={*others, self._process.pid}, sessions=others)

    def _wait_for_its_end(self) -> None:
        """An orphan that traces it as a debugger does hides its end from us for as long as the orphan lives."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=ENDING_LOOK_S)
                return
            for orphan in self._orphans():
                processes.send(processes.family(orphan), signal.SIGKILL)

    def _end_orphans(self) -> None:
        """Kill what the family left to the judge, until nothing is left."""
        for _ in range(ENDING_PASSES):
            orphans = self._orphans()
            if not orphans:
                return
            processes.send([pid for orphan in orphans for pid in processes.family(orphan)], signal.SIGKILL)
            for orphan in orphans:
                with contextlib.suppress(psutil.Error):
                    psutil.Process(orphan).wait(timeout=5)
