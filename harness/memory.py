"""What memory there is, and who took it. Free of torch: workers are started with it at once.

What is there is the least of the machine's, of the control groups' that this process is in, and of its own limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.storage.limits import bytes_of

# A worker that holds a larger share of what memory there is ends before the system ends something else.
WORKER_FRACTION = 0.75

# A smaller limit for a worker, in GiB, is taken from this variable.
WORKER_VARIABLE = "KERNELGATE_MEMORY_GIB"

# Memory can be held where no process shows it: with less than this share left, the worker that is asked ends.
LEFT_FRACTION = 0.03

# What a worker holds that has done nothing yet, and what the system's books may be off.
IDLE_BYTES = 1 << 30

# Freed blocks of up to so many bytes are kept, so much in all: numbers of mallopt(3). By itself glibc keeps twice the
# largest block that it has seen, and memory that is mapped anew comes page by page, which takes longer than to fill it.
_KEPT_BLOCK_BYTES = 32 << 20
_KEPT_BYTES = 1 << 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GROUPS = Path("/sys/fs/cgroup")

# Where the two versions of control groups keep a limit, what is used, and its parts by name: files that can be given
# up, memory of processes, and memory files. Kernel, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
_V2 = ("memory.max", "memory.current", "inactive_file", "anon", "shmem")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_rss", "total_shmem")


@dataclass(frozen=True)
class Scope:
    """A share of memory that runs out as a whole: the machine's, or a control group's. All in bytes."""

    total: int
    available: int
    anonymous: int
    """What processes hold that is no file's: no file, page cache or buffer of the system's counts here."""
    shared: int = 0
    """What lies in memory files."""

    @property
    def is_scarce(self) -> bool:
        return self.available < self.total * LEFT_FRACTION


def scopes() -> list[Scope]:
    """The machine, then the control groups with a limit that this process is in."""
    memory = psutil.virtual_memory()
    of_machine = _table(Path("/proc/meminfo"))
    swapped = of_machine.get("SwapTotal:", 0) - of_machine.get("SwapFree:", 0)
    anonymous = 1024 * (of_machine.get("AnonPages:", 0) + swapped)
    machine = Scope(memory.total, memory.available, anonymous, memory.shared)
    groups = []
    for folder, names in _limited_groups(memory.total):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((folder / name).read_text()) for name in names[:2])
            parts = _table(folder / "memory.stat")
            left = limit - used + parts.get(names[2], 0)
            groups.append(Scope(limit, max(left, 0), parts.get(names[3], 0), parts.get(names[4], 0)))
    return [machine, *groups]


def smallest() -> Scope:
    """The machine, or the control group with the least limit that this process is in: a container's."""
    return min(scopes(), key=lambda scope: scope.total)


def is_scarce() -> bool:
    """Whether so little is left that the system will soon end something."""
    return any(scope.is_scarce for scope in scopes())


def free_bytes() -> int:
    """How much more memory this process and its workers may take."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    own = [] if most == resource.RLIM_INFINITY else [max(most - _own_pages(0) * _PAGE_BYTES, 0)]
    return min(*(scope.available for scope in scopes()), *own, psutil.virtual_memory().total)


def worker_limit(total: int) -> int:
    """Bytes that a worker may hold where there are `total` bytes: those of `smallest()`."""
    return min(bytes_of(WORKER_VARIABLE, total), int(total * WORKER_FRACTION))


class Watch:
    """Who took the memory since it was made: a worker that it watches, the judge with other workers, or others.

    Make it before the worker starts. A worker cannot make others look guilty: what it holds in its processes is its
    own, or gone with them, and memory files count as others' only while others have them open. What the kernel holds,
    and files that nobody has open, are never taken for others'."""

    def __init__(self, ours: Callable[[], Iterable[int]]) -> None:
        """`ours` gives the processes of the judge and of all that it started."""
        self._processes = ours
        self._scopes = scopes()
        self._judges = private_bytes(ours())
        self._files_of_others = self._in_files_of_others()
        self._killed = _processes_killed_for_memory()

    def system_killed(self) -> bool:
        """Whether the system has ended a process for want of memory since."""
        return _processes_killed_for_memory() > self._killed

    def others_filled(self, worker: Iterable[int] = ()) -> bool:
        """Whether others took at least half of what was there for the worker. While it runs, `worker` gives its
        processes: once it has ended others may have, too, and nobody holds what was short."""
        worker, now = set(worker), scopes()
        judges = max(private_bytes(set(self._processes()) - worker) - self._judges, 0)
        ours, in_files = judges + private_bytes(worker), self.files_of_others(worker)
        return any(
            _taken(before, after, ours, in_files) >= (before.available - judges - _left(before)) / 2
            for before, after in zip(self._scopes, now, strict=False)
        )

    def files_of_others(self, worker: Iterable[int] = ()) -> int:
        """Bytes that memory files of others have grown by; `worker` as in `others_filled`."""
        return max(self._in_files_of_others(worker) - self._files_of_others, 0)

    def _in_files_of_others(self, worker: Iterable[int] = ()) -> int:
        """Processes of all first: what is started in between is not taken for others'."""
        return memory_files_bytes(set(psutil.pids()).difference(self._processes(), worker))


def _taken(before: Scope, now: Scope, ours: int, in_files: int) -> int:
    """Bytes of a scope that others took, in processes and in files."""
    return now.anonymous - before.anonymous - ours + min(in_files, max(now.shared - before.shared, 0))


def _left(scope: Scope) -> int:
    """Bytes that nobody gets: what is left where memory is scarce, and what a worker has that does nothing."""
    return int(scope.total * LEFT_FRACTION) + IDLE_BYTES


def private_bytes(pids: Iterable[int]) -> int:
    """Memory of processes that is no file's; what forks share is counted for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
            total += (resident - shared) * _PAGE_BYTES
    return total


def memory_files_bytes(pids: Iterable[int]) -> int:
    """Memory of the memory files that processes have open, each counted once. What a process keeps of one that it has
    closed is not seen, nor what is another user's."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as opened:
            for file in opened:
                with contextlib.suppress(OSError):
                    if os.readlink(file.path).startswith(("/memfd:", "/dev/shm/")):
                        seen = os.stat(file.path)
                        found[seen.st_dev, seen.st_ino] = seen.st_blocks * 512  # the unit of st_blocks: stat(2)
    return sum(found.values())


def mapped_memory_files_bytes() -> int:
    """What this process has mapped of memory files, such as the arena."""
    return 1024 * _table(Path("/proc/self/status")).get("RssShmem:", 0)


def _own_pages(column: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[column])


def _processes_killed_for_memory() -> int:
    return _table(Path("/proc/vmstat")).get("oom_kill", 0)


def _table(path: Path) -> dict[str, int]:
    """A file of the system's with a name and a number in each line, and maybe a unit; empty where there is none."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[1].isdigit():
                found[words[0]] = int(words[1])
    return found


@functools.cache
def _limited_groups(total: int) -> list[tuple[Path, tuple[str, ...]]]:
    """The folders of control groups above this process whose limit is below `total` bytes, and their files' names."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            root, names = (_GROUPS / "memory", _V1) if controllers else (_GROUPS, _V2)
            group = root / path.lstrip("/")
            found += [(folder, names) for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return [(folder, names) for folder, names in found if _limit(folder / names[0]) < total]


def _limit(file: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return float("inf")


def keep_freed() -> None:
    """Have this process keep what it frees, for who takes and frees memory again and again. Does nothing where the C
    library is not glibc."""
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
