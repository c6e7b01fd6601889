"""Who times calls on a device has it alone: a lock of this machine, which every run of kernelgate respects.

Runs that ask whether a submission is right share the device; one that times waits until they stand still, and none
begins meanwhile. The locks are POSIX record locks on a file: they end with their process, are not inherited by workers,
and need the file opened for writing, which Landlock and namespaces deny a submission.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import HarnessError
from harness.paths import turns_folder

# The device that a machine's processors are.
PROCESSORS = "processors"

# Places in the file. Who enters holds the door: one that wants to be alone is not overtaken for ever. In the room each
# process has a place of its own, and who is alone has all of them.
_DOOR = 0
_ROOM = 1
_PLACES = 1 << 32

# struct flock of 64-bit Linux: type, whence, start, length, and the process that a lock is in the way of (fcntl(2)).
_FLOCK = "hhqqi4x"

# Who enters has the door for less than this: nobody is told of such a wait.
MOMENT_S, LOOK_S = 0.05, 0.001


class Turns:
    """Turns on the device `name`, such as `cuda-GPU-…`. Its file is anybody's to lock."""

    def __init__(self, name: str, folder: Path | None = None, *, needs: str = "") -> None:
        """`folder` is paths.turns_folder() without another. Who has the device alone shares the one that it `needs`.
        Raises HarnessError where a file cannot be opened."""
        folder = folder or turns_folder()
        try:
            self._file = _opened(folder, f"{name}.lock")
        except OSError as error:
            raise HarnessError(
                f"The lock of this machine for '{name}' cannot be opened: {folder / name}.lock: {error.strerror}. Who "
                "uses the device beside this run is not known without it: remove the file, or make it writable."
            ) from error
        self._own = _ROOM + os.getpid()
        self._needed = Turns(needs, folder) if needs else None

    def close(self) -> None:
        """Ends whatever is held, too."""
        os.close(self._file)
        if self._needed:
            self._needed.close()

    @contextlib.contextmanager
    def shared(self, on_wait: Callable[[int], None]) -> Iterator[None]:
        """Use the device beside others, and not while one has it alone. `on_wait` is called if that takes time, with
        the number of a process that is waited for, or 0."""
        with self._held(self._own, 1, on_wait):
            yield

    @contextlib.contextmanager
    def alone(self, on_wait: Callable[[int], None]) -> Iterator[None]:
        """Have the device, not within `shared`: two that waited for each other to leave would wait for ever."""
        said = _Once(on_wait)
        needed = self._needed.shared(said) if self._needed else contextlib.nullcontext()
        with self._held(_ROOM, _PLACES, said), needed:
            yield

    @contextlib.contextmanager
    def _held(self, start: int, length: int, on_wait: Callable[[int], None]) -> Iterator[None]:
        wait = _Once(on_wait)
        try:
            self._lock(_DOOR, 1, wait)
            self._lock(start, length, wait)
            self._free(_DOOR, 1)
            yield
        finally:
            self._free(_DOOR, 1)
            self._free(start, length)

    def _lock(self, start: int, length: int, on_wait: Callable[[int], None]) -> None:
        deadline_s = time.monotonic() + MOMENT_S
        while not self._locks_at_once(start, length):
            if time.monotonic() > deadline_s:
                on_wait(self._in_the_way(_ROOM, _PLACES) or self._in_the_way(start, length))
                fcntl.lockf(self._file, fcntl.LOCK_EX, length, start)
                return
            time.sleep(LOOK_S)

    def _locks_at_once(self, start: int, length: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            return False
        return True

    def _in_the_way(self, start: int, length: int) -> int:
        """The process that has some of these places; 0 for none, and for one in another namespace of processes."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        found, *_, process = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return process if found != fcntl.F_UNLCK else 0

    def _free(self, start: int, length: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, length, start)


class _Once:
    def __init__(self, call: Callable[[int], None]) -> None:
        self._call: Callable[[int], None] | None = call

    def __call__(self, process: int) -> None:
        call, self._call = self._call, None
        if call:
            call(process)


def _opened(folder: Path, name: str) -> int:
    """Another user's file is opened and not made: the kernel refuses O_CREAT for it in a folder that is everybody's."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileNotFoundError):
        return os.open(folder / name, flags)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)
    try:
        file = os.open(folder / name, flags | os.O_CREAT | os.O_EXCL)
    except FileExistsError:  # made by another in this moment
        return os.open(folder / name, flags)
    os.fchmod(file, 0o666)
    return file
