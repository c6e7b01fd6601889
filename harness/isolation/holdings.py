"""Limits on what a worker holds of the machine: processes, memory and disk."""

from __future__ import annotations

import os

from harness import memory
from harness.errors import Inconclusive, Stopped, SubmissionError
from harness.isolation import processes
from harness.isolation.family import Family
from harness.isolation.home import Home
from harness.reasons import Reason
from harness.storage import disk
from harness.storage.limits import bytes_of

# A smaller limit for the disk, in GiB, is taken from this variable.
DISK_VARIABLE = "KERNELGATE_DISK_GIB"

# nvcc starts some ten processes for each of two sources.
MAX_PROCESSES = 128

MAX_DISK_BYTES = 4 << 30

OTHERS_FILLED = (
    "Others filled this machine's memory while it ran, and its process had to end: since it started they took most of "
    "what was there. Run it again when there is room."
)
KILLED = "The system ended the process that ran it: the machine's memory was used up, and others had not taken it."


class Holdings:
    """What one worker may hold, measured from what the machine had before the worker started."""

    def __init__(self, home: Home) -> None:
        """Make it before the worker's process starts. Raises HarnessError for a limit in the environment that is
        none."""
        self._home = home
        self._disk_limit_bytes = bytes_of(DISK_VARIABLE, MAX_DISK_BYTES)
        self._free_at_start = home.free_bytes()
        self._shared_at_start = memory.smallest().shared
        self._arena_at_start = memory.mapped_memory_files_bytes()
        self._watch = memory.Watch(lambda: processes.family(os.getpid()))
        self._others_filled = False
        """Whether that was so when the memory was nearly used up."""

    def check(self, family: Family) -> None:
        """Raises SubmissionError with too_many_processes, out_of_memory or too_much_disk."""
        members = family.members(MAX_PROCESSES)
        if len(members) > MAX_PROCESSES:
            raise SubmissionError(Reason.TOO_MANY_PROCESSES, f"It ran more than {MAX_PROCESSES} processes at a time.")
        self._check_memory(members)
        self._check_disk()

    def _check_memory(self, members: list[int]) -> None:
        there = memory.smallest()
        limit = memory.worker_limit(there.total)
        in_files = max(there.shared - self._shared_at_start, 0)  # others may have let go of theirs meanwhile
        if processes.resident_bytes(members) + in_files > limit:  # what is cheap to know
            self._check_what_is_its_own(members, in_files, limit)
        if memory.is_scarce():
            self._others_filled = self._watch.others_filled(members)
            raise SubmissionError(Reason.OUT_OF_MEMORY, "While it ran, the machine's memory was nearly used up.")

    def _check_what_is_its_own(self, members: list[int], in_files: int, limit: int) -> None:
        """Without the arena, which is the judge's, and without memory files that others have open, such as another
        judge's arena. What no process shows counts: a file can be on its way between two of the worker's."""
        elsewhere = self._watch.files_of_others(members)
        used = memory.private_bytes(members) + max(in_files - self._arena_since_start() - elsewhere, 0)
        if used > limit:
            raise SubmissionError(
                Reason.OUT_OF_MEMORY,
                f"It held {used / 2**30:.1f} GiB of memory; {limit / 2**30:.1f} GiB is the limit here.",
            )

    def _arena_since_start(self) -> int:
        return memory.mapped_memory_files_bytes() - self._arena_at_start

    def _check_disk(self) -> None:
        """Asks the disk, which is cheap, and walks through the folder only when the disk has lost that much room."""
        limit = self._disk_limit_bytes
        if self._free_at_start - self._home.free_bytes() > limit and self._home.has_written(limit):
            raise SubmissionError(Reason.TOO_MUCH_DISK, f"It wrote more than {limit / 2**30:.3g} GiB of files.")

    def of_memory(self, reason: Reason, *, killed: bool) -> Stopped | None:
        """What an end for this `reason` is where memory was why; `killed` says that it was by SIGKILL. None for others.
        Ask when the worker has ended with all that it started."""
        by_system = killed and self._watch.system_killed()
        if reason != Reason.OUT_OF_MEMORY and not by_system:
            return None
        if self._others_filled or self._watch.others_filled():
            return Inconclusive(Reason.NOT_ENOUGH_MEMORY, OTHERS_FILLED)
        return SubmissionError(Reason.OUT_OF_MEMORY, KILLED) if by_system else None

    def require_room(self) -> None:
        """Raises HarnessError when others have filled the disk: what failed then says nothing about a submission."""
        if not self._home.has_written(disk.MIN_FREE_BYTES):
            disk.temporary_folder()
