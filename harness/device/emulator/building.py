"""Running the compiler, and results that appear in the cache whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.errors import KernelgateError


class CompilerError(KernelgateError):
    """The compiler failed; `log` is all it said."""

    def __init__(self, command: list[str], log: str):
        super().__init__(f"{' '.join(command[:2])} ... failed:\n{log}")
        self.log = log


def run(command: list[str], folder: Path) -> str:
    """Run a compiler in `folder` and return what it printed. Raises CompilerError, and OSError for a full disk."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode:
        if os.strerror(errno.ENOSPC) in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        raise CompilerError(command, done.stderr + done.stdout)
    return done.stdout


def digest_of_files(files: Iterable[Path]) -> str:
    """A digest of names and contents."""
    result = hashlib.sha256()
    for file in sorted(files):
        result.update(str(file).encode() + b"\0" + file.read_bytes() + b"\0")
    return result.hexdigest()


def once(final: Path, make: Callable[[Path], None]) -> Path:
    """The folder `final`, made by `make` if it does not exist.

    A process that finds another at it waits for the other's result, which takes minutes to make. The lock is the
    system's and goes with the process that holds it; where there are no such locks, the first rename wins.
    """
    if final.exists():
        with contextlib.suppress(OSError):  # a worker only reads here
            os.utime(final)  # what was not used for longest is given up first
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with open(final.parent / f".{final.name}.lock", "w") as lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.exists():
            _make(final, make)
    return final


def _make(final: Path, make: Callable[[Path], None]) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        make(work)
        try:
            work.rename(final)
        except OSError:
            if not final.exists():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
