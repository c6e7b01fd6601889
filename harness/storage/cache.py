"""The cache stays within a limit: at the end of a run, what was not used for longest goes.

Every process that uses the cache holds a shared lock on it, and things are removed under an exclusive one: never while
anybody else uses any of it. Who ends while others still run removes nothing; the last of them does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.paths import cache_root
from harness.storage.disk import folder_bytes
from harness.storage.limits import bytes_of

VARIABLE = "KERNELGATE_CACHE_GIB"

# The emulator's precompiled headers have 0.3 to 0.5 GiB each, and a version of its headers three of them.
MAX_BYTES = 8 << 30

_LOCK = ".in-use"
_REMOVED = ".removed-"

# Folders of which each folder is used, and given up, by itself. The others are given up as a whole.
_OF_MANY = ("build", "emulator", "shared")


def limit_bytes() -> int:
    """Raises HarnessError when the variable holds something else."""
    return bytes_of(VARIABLE, MAX_BYTES)


def size_bytes() -> int:
    """What the cache takes on disk."""
    return folder_bytes(cache_root())


def mark_used(folder: Path) -> None:
    """Have `folder` given up last. Its time of access would not tell: systems are told not to write that down."""
    with contextlib.suppress(OSError):
        os.utime(folder)


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """While this is open nothing of the cache is removed; then what is too much, unless others use it.

    Raises HarnessError for a limit that is none. Where the cache cannot be locked nothing is ever removed."""
    limit = limit_bytes()
    with contextlib.ExitStack() as open_files:
        lock: int | None = None
        with contextlib.suppress(OSError):
            cache_root().mkdir(parents=True, exist_ok=True)
            lock = os.open(cache_root() / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            open_files.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # BlockingIOError: others use it
                if lock is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _trim(cache_root(), limit)


def _trim(root: Path, limit: int) -> None:
    for left in root.glob(f"{_REMOVED}*"):  # by a process that was killed on the way
        shutil.rmtree(left, ignore_errors=True)
    total = folder_bytes(root)
    for folder in sorted(_folders(root), key=lambda folder: folder.stat().st_mtime):
        if total <= limit:
            return
        with contextlib.suppress(OSError):  # somebody else's
            size = folder_bytes(folder)
            _remove(folder, root)
            total -= size


def _folders(root: Path) -> Iterator[Path]:
    for folder in root.iterdir():
        if folder.is_dir() and not folder.is_symlink():
            yield from (f for f in folder.iterdir() if f.is_dir()) if folder.name in _OF_MANY else (folder,)


def _remove(folder: Path, root: Path) -> None:
    """Whole or not at all for whoever looks for it: half a folder would be taken for a whole one."""
    aside = root / f"{_REMOVED}{folder.name}"
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
