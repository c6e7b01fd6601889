"""What a worker takes from itself before it loads a submission. Linux only; nothing here needs root."""

from __future__ import annotations

import ctypes
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38

MAX_FILE_BYTES = 8 << 30


def restrict() -> None:
    """No core dumps, bounded files, no new privileges, and death with the judge."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (ceiling, ceiling))
