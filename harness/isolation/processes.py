"""Families of processes, read from /proc: a worker and all that it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterable, Set
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# clock_getcpuclockid(3) makes a clock's number of a process's so: linux/posix-timers.h.
_CPUCLOCK_SCHED = 2

_PR_SET_CHILD_SUBREAPER = 36

_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


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


def processor_s(pids: Iterable[int]) -> dict[int, float]:
    """Processor time that each of `pids` that is not gone has used, all of its threads together, in seconds."""
    used: dict[int, float] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            used[pid] = time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return used


def handed_on(pid: int) -> tuple[object, ...] | None:
    """What processes inherit from `pid`, and others of its user can change: limits, processors and priority; None when
    it is gone."""
    with contextlib.suppress(OSError):
        limits = tuple(resource.prlimit(pid, which) for which in _LIMITS)
        priority = os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)
        return limits, os.sched_getaffinity(pid), priority
    return None


def let_run_on(processors: Set[int], pid: int) -> None:
    """Let every thread of `pid` run on `processors`."""
    with contextlib.suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            with contextlib.suppress(OSError):
                if os.sched_getaffinity(thread) != processors:
                    os.sched_setaffinity(thread, processors)


def adopt_orphans() -> None:
    """Have what a descendant leaves behind become a child of this process, so that none escapes being ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def adopted(keep: Iterable[int], sessions: Iterable[int] = ()) -> list[int]:
    """Children of this process that came to it by adoption: in a group of their own, and not in `keep`; none that
    belongs to one of `sessions`, which nobody can join."""
    kept, others, own_group = set(keep), set(sessions), os.getpgrp()
    found = []
    for pid in _children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            if pid not in kept and os.getpgid(pid) != own_group and os.getsid(pid) not in others:
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
    """Those of `pids` that have ended and that nobody has waited for. A process of which only the first thread has
    ended looks like one, and is none."""
    return {pid for pid in pids if _threads_are(pid, "ZX")}


def all_stopped(pids: Iterable[int]) -> bool:
    """Whether every thread of `pids` stands still or has ended. One that waits for a core stops late."""
    return all(_threads_are(pid, "TtZX") for pid in pids)


def have_left_processors(pids: Iterable[int]) -> bool:
    """Wait until the threads of `pids`, which are stopped, have left their processors; False where the system does not
    let us know, or one runs.

    A thread is called stopped a moment before it leaves. An interrupt, or a host that takes the processor away, can
    make that milliseconds, and what a thread used since the last tick is added to its process's time only then
    (Linux, kernel/sched/cputime.c: thread_group_cputime). The kernel waits for that before it shows a thread's system
    call (lib/syscall.c: task_current_syscall)."""
    return all([_has_left(f"/proc/{pid}/task/{thread}") for pid in pids for thread in _threads(pid)])


def _has_left(folder: str) -> bool:
    try:
        return Path(f"{folder}/syscall").read_bytes() != b"running\n"
    except OSError:
        return not os.path.exists(folder)  # it is gone, or the file is hidden from us


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _threads_are(pid: int, states: str) -> bool:
    """Whether every thread of `pid` is in one of `states`; so it is when `pid` is gone."""
    return all(_state(f"/proc/{pid}/task/{thread}") in states for thread in _threads(pid))


def _state(folder: str) -> str:
    """proc(5)'s letter for the state of a process or thread; X when it is gone."""
    try:  # as bytes: a process gives itself a name, which need not be text
        return Path(f"{folder}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return "X"


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each that still is there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
