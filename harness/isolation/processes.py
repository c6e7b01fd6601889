"""Families of processes, read from /proc: a worker and all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# clock_getcpuclockid(3) makes a clock's number of a process's so: linux/posix-timers.h.
_CPUCLOCK_SCHED = 2


def family(pid: int, at_most: int = 1 << 20) -> list[int]:
    """`pid` and its descendants, parents first; counting ends once there are more than `at_most`."""
    found = [pid]
    for parent in found:
        if len(found) > at_most:
            break
        found += _children(parent)
    return found


def _children(pid: int) -> list[int]:
    """Children of every thread of `pid`; none when it is gone."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return children


def started_so_far() -> int | None:
    """How many processes and threads were started since the machine was, here or in a namespace below; None where the
    system does not say. Unlike process numbers, of which there may be 32,768, this does not come round again."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/stat").read_bytes().rpartition(b"\nprocesses ")[2].split(maxsplit=1)[0])
    return None


def processor_s(pids: Iterable[int]) -> float:
    """Processor time that the living of `pids` have used, all of their threads together, in seconds."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return total


def adopted(keep: Iterable[int]) -> list[int]:
    """Children of this process that came to it by adoption: in a group of their own, and not in `keep`."""
    kept, own_group = set(keep), os.getpgrp()
    found = []
    for pid in _children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            if pid not in kept and os.getpgid(pid) != own_group:
                found.append(pid)
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that the processes hold, what they share counted for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def zombies(pids: Iterable[int]) -> set[int]:
    """Those of `pids` that have ended and wait for somebody to ask how."""
    return {pid for pid in pids if _state(f"/proc/{pid}") in "ZX"}


def all_stopped(pids: Iterable[int]) -> bool:
    """Whether every thread of `pids` stands still or has ended: one that waits for a core takes its stop late."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if any(_state(f"/proc/{pid}/task/{thread}") not in "TtZX" for thread in os.listdir(f"/proc/{pid}/task")):
                return False
    return True


def _state(folder: str) -> str:
    """proc(5)'s letter for the state of a process or thread; X when it is gone."""
    try:
        return Path(f"{folder}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each that still is there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
