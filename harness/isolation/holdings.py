"""Limits on what a worker holds of the machine: processes, memory and disk."""

from __future__ import annotations

import psutil

from harness.errors import SubmissionError
from harness.isolation import processes
from harness.isolation.family import Family
from harness.isolation.home import Home
from harness.reasons import Reason
from harness.storage import disk
from harness.storage.limits import bytes_of

# A worker that holds a larger share of the machine's memory ends before the system ends something else.
MEMORY_FRACTION = 0.75

# Smaller limits for memory and disk, in GiB, are taken from these variables.
MEMORY_VARIABLE, DISK_VARIABLE = "KERNELGATE_MEMORY_GIB", "KERNELGATE_DISK_GIB"

# Memory can be held where no process shows it: when less than this share is left, the worker that is asked ends.
MEMORY_LEFT_FRACTION = 0.03

# nvcc starts some ten processes for each of two sources.
MAX_PROCESSES = 128

MAX_DISK_BYTES = 4 << 30


class Holdings:
    """What one worker may hold, measured from what the machine had before the worker started."""

    def __init__(self, home: Home) -> None:
        """Make it before the worker's process starts."""
        self._home = home
        self._free_at_start = home.free_bytes()
        self._shared_at_start = psutil.virtual_memory().shared

    def check(self, family: Family) -> None:
        """Raises SubmissionError with too_many_processes, out_of_memory or too_much_disk."""
        members = family.members(MAX_PROCESSES)
        if len(members) > MAX_PROCESSES:
            raise SubmissionError(Reason.TOO_MANY_PROCESSES, f"It ran more than {MAX_PROCESSES} processes at a time.")
        self._check_memory(members)
        self._check_disk()

    def _check_memory(self, members: list[int]) -> None:
        memory = psutil.virtual_memory()
        # Memory files belong to no process. The judge's arena is one, and small beside the limit.
        in_files = max(memory.shared - self._shared_at_start, 0)
        used, limit = processes.resident_bytes(members) + in_files, memory_limit(memory.total)
        if used > limit:
            raise SubmissionError(
                Reason.OUT_OF_MEMORY,
                f"It held {used / 2**30:.1f} GiB of memory; {limit / 2**30:.1f} GiB is the limit on this machine.",
            )
        if memory.available < memory.total * MEMORY_LEFT_FRACTION:
            raise SubmissionError(Reason.OUT_OF_MEMORY, "While it ran, the machine's memory was nearly used up.")

    def _check_disk(self) -> None:
        """Asks the disk, which is cheap, and walks through the folder only when the disk has lost that much room."""
        limit = bytes_of(DISK_VARIABLE, MAX_DISK_BYTES)
        if self._free_at_start - self._home.free_bytes() > limit and self._home.has_written(limit):
            raise SubmissionError(Reason.TOO_MUCH_DISK, f"It wrote more than {limit / 2**30:.3g} GiB of files.")

    def require_room(self) -> None:
        """Raises HarnessError when others have filled the disk: what failed then says nothing about a submission."""
        if not self._home.has_written(disk.MIN_FREE_BYTES):
            disk.temporary_folder()


def memory_limit(total: int) -> int:
    """Bytes that a worker may hold on a machine with `total` bytes of memory."""
    return min(bytes_of(MEMORY_VARIABLE, total), int(total * MEMORY_FRACTION))
