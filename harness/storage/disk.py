"""Room on the disk: how much there is, how much something takes, and what to say when there is too little."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessError
from harness.paths import cache_root

# A worker's folder holds its build: sources, objects and what compilers write on the way. With less room than this it
# is not started, since a compiler that finds none would look like a submission that does not build.
MIN_FREE_BYTES = 256 << 20

_FULL = (errno.ENOSPC, errno.EDQUOT)


def folder_bytes(folder: Path) -> int:
    """What lies in `folder`, itself included, in allocated bytes; what cannot be read is left out.

    A submission can nest folders deeper than Python can recurse and than a path can name; `du` counts those, too.
    """
    counted = subprocess.run(
        ["du", "-s", "-k", "--", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    ).stdout
    return int(counted.split()[0]) * 1024 if counted else 0  # nothing is said about a folder that is gone


def is_full(error: OSError) -> bool:
    """Whether `error` says that a disk, or a user's share of it, is full."""
    return error.errno in _FULL


def temporary_folder() -> Path:
    """Where workers have their folders. Raises HarnessError when there is too little room, or no such folder."""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:  # it tries to write to each of them
        raise HarnessError(f"{error.strerror}: none can be written to, or none has room. {_what_to_do()}") from None
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise HarnessError(
            f"The disk is nearly full: {folder}, where workers have their files, has {_mib(free)} left, and "
            f"{_mib(MIN_FREE_BYTES)} are needed. {_what_to_do()}"
        )
    return folder


@contextlib.contextmanager
def full_is_said() -> Iterator[None]:
    """Turn an OSError for want of room into a HarnessError that says what to do."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        place = f" while {error.filename} was written" if error.filename else ""
        raise HarnessError(f"The disk is full{place}: {error.strerror}. {_what_to_do()}") from error


def _what_to_do() -> str:
    return (
        "Make room, or have files put elsewhere: TMPDIR moves temporary ones, KERNELGATE_CACHE the cache "
        f"{cache_root()}, which has {_mib(folder_bytes(cache_root()))}; KERNELGATE_CACHE_GIB keeps less of it."
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
