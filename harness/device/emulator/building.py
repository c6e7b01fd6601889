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
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TypeVar

import psutil

from harness.errors import KernelgateError

T = TypeVar("T")

# A signal that comes just before a system call waits is heard behind it: who waits for minutes looks up so often.
LOOKS_UP_S = 1.0

# Flags of each compilation: to collect its garbage takes g++ a twelfth of a kernel's time, and saves 20 MB of 640.
NO_COLLECTION = ("--param=ggc-min-expand=1000", "--param=ggc-min-heapsize=1048576")


class CompilerError(KernelgateError):
    """The compiler failed; `log` is all it said."""

    def __init__(self, command: list[str], log: str):
        super().__init__(f"{' '.join(command[:2])} ... failed:\n{log}")
        self.log = log


class Compilers:
    """Those that run now: who is interrupted must end them, or they would be waited for."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._may_start = True

    def run(self, command: list[str], folder: Path) -> tuple[int, str, str]:
        """The exit code, and what it printed. Raises CompilerError where all were ended."""
        with self._lock:
            if not self._may_start:
                raise CompilerError(command, "The build was ended.")
            compiler = subprocess.Popen(
                command, cwd=folder, env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, errors="replace",
            )  # fmt: skip
            self._running.add(compiler)
        with compiler:
            try:
                output, errors = compiler.communicate()
            except BaseException:
                self._kill(compiler)
                raise
            finally:
                self._running.discard(compiler)
        return compiler.returncode, output, errors

    def begin(self) -> None:
        """From here on they may start, whatever was ended before."""
        self._may_start = True

    @contextlib.contextmanager
    def ended_by_failure(self) -> Iterator[None]:
        """Whatever is raised within it ends them all, and none is started until `begin`: what waits for threads that
        wait for compilers goes around it."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._may_start = False
                for compiler in [*self._running]:  # the threads that wait for them take them out
                    self._kill(compiler)
            raise

    def _kill(self, compiler: subprocess.Popen[str]) -> None:
        """With those that it has started, as g++ does. They have no group of their own to be ended by: the judge takes
        a child in another group for what a submission left behind, and ends it."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(compiler.pid)
            process.suspend()  # it starts no more
            for each in (*process.children(recursive=True), process):
                with contextlib.suppress(psutil.Error):
                    each.kill()


compilers = Compilers()


def result_of(future: Future[T]) -> T:
    """What it gives, once it is there. Raises what it raises."""
    while not future.done():
        wait([future], LOOKS_UP_S)
    return future.result()


def run(command: list[str], folder: Path) -> str:
    """Run a compiler in `folder` and return what it printed. Raises CompilerError, and OSError for a full disk."""
    code, output, errors = compilers.run(command, folder)
    if code:
        if os.strerror(errno.ENOSPC) in errors:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        raise CompilerError(command, errors + output)
    return output


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
