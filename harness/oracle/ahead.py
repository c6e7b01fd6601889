"""What must come out of small cases, computed by a process of its own while the judge asks workers.

Half of a verdict's time is this arithmetic, and another core is mostly idle meanwhile. The process is a fork of the
judge, before any submission is loaded, and as closed to others as the judge is. It gives numbers alone: models and data
are drawn again from their seeds, which is cheap.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import select
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.oracle.outputs import Expected

# A case takes milliseconds. A process that is silent for so long was stopped by somebody: the judge computes itself.
PATIENCE_S = 5.0

# Fewer cases are not worth a process.
FEWEST = 8

_PR_SET_PDEATHSIG = 1

# glibc's malloc.h, and the largest threshold that it takes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_FROM_HEAP_BYTES = 32 << 20
_KEPT_BYTES = 256 << 20

# Of each case: whether it could be computed, and where its numbers lie in the file.
_RECORD = struct.Struct("!?QQ")


@dataclass(frozen=True)
class Known:
    """What must come out of a case, and of its further calls in the order of harness.oracle.further.Further; of these
    there may be none."""

    expected: list[Expected]
    further: list[list[Expected]]


class Ahead:
    """What a forked process computes with `compute`, case by case."""

    def __init__(self, names: Sequence[str], compute: Callable[[str], Known]) -> None:
        """Starts it on the cases of these `names`, in their order. `compute` runs in the process alone; of a case for
        which it raises there is nothing."""
        self._coming = list(names)
        self._file = os.memfd_create("kernelgate-expected")
        self._said, say = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _be_the_process(self._coming, compute, self._file, say)
        os.close(say)

    def take(self, name: str) -> Known | None:
        """The results of a case, waited for; None where there are none."""
        while name in self._coming:
            record = self._next_record()
            if record is None:
                self.end()
                return None
            done, (right, start, size) = self._coming.pop(0), record
            if done == name:  # what was passed over is not asked for
                return pickle.loads(os.pread(self._file, size, start)) if right else None
        return None

    def _next_record(self) -> tuple[bool, int, int] | None:
        if not select.select([self._said], [], [], PATIENCE_S)[0]:
            return None
        record = os.read(self._said, _RECORD.size)
        return _RECORD.unpack(record) if len(record) == _RECORD.size else None

    def end(self) -> None:
        """End the process. What it has not computed there is none of."""
        self._coming = []
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            os.close(self._said)
            os.close(self._file)
            self._pid = 0


class _Pickler(pickle.Pickler):
    """Tensors as NumPy's arrays: torch writes a zip file for each."""

    def reducer_override(self, value: Any) -> Any:
        return (torch.from_numpy, (value.numpy(),)) if type(value) is torch.Tensor else NotImplemented


def _packed(known: Known) -> bytes:
    packed = io.BytesIO()
    _Pickler(packed, protocol=5).dump(known)
    return packed.getvalue()


def _keep_freed_memory() -> None:
    """Use memory again in place of giving it back to the system, which clears it: a seventh of the time."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _MOST_FROM_HEAP_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _be_the_process(names: Sequence[str], compute: Callable[[str], Known], file: int, say: int) -> None:
    """Compute one after the other, and end. A record is no longer than a pipe writes at once."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge ends it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _keep_freed_memory()
        torch.set_num_threads(1)  # threads of the judge are not in the fork, and one that waits for them waits for ever
        start = 0
        for name in names:
            found = b""
            with contextlib.suppress(Exception):  # the judge will say what is wrong with it
                found = _packed(compute(name))
            os.pwrite(file, found, start)
            os.write(say, _RECORD.pack(bool(found), start, len(found)))
            start += len(found)
    finally:
        os._exit(0)
