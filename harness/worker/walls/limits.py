"""What a worker takes from itself before it loads a submission. Linux only; nothing here needs root."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

from harness.worker.walls.landlock import restrict_writes
from harness.worker.walls.seccomp import refuse_userfaultfd

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522

MAX_FILE_BYTES = 2 << 30


def end_with_the_judge() -> None:
    """Have this process killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def restrict(landlocked: str) -> None:
    """No core dumps, bounded files, no privileges, no memory that comes only when somebody looks, death with the judge,
    and the first to go when memory runs out. With `landlocked`, folders joined by os.pathsep: writes only there."""
    libc = ctypes.CDLL(None, use_errno=True)
    end_with_the_judge()
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities(libc)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    Path("/proc/self/oom_score_adj").write_text("1000")
    if landlocked:
        restrict_writes(landlocked.split(os.pathsep))
    refuse_userfaultfd()


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Where the judge is root its worker is an ordinary user in all but name; without new privileges for good."""
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 of each: capset(2)
    if libc.capset(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), ctypes.byref(none)):
        raise OSError(ctypes.get_errno(), "a worker's capabilities could not be dropped")


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (ceiling, ceiling))
