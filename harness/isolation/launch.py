"""Starting a worker's process: as a program of its own, or as the fork of one that has loaded what all workers need.

Loading torch takes a second of processor time, and a run may need hundreds of workers. A program is started where a
fork does not do: bubblewrap must run before what it isolates, the compiler of baselines is loaded once, and forks on a
GPU are untried.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import site
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import HarnessError
from harness.isolation import processes
from harness.paths import ROOT, emulator_cache
from harness.protocol import fork

# Variables that a worker may see: those that locate compilers, CUDA and the device, and no others.
KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS", "VIRTUAL_ENV", "PYTHONPYCACHEPREFIX",
)  # fmt: skip

# On the CPU freed memory stays with the process, as PyTorch's allocator keeps a GPU's. Otherwise the clock would time
# the system's page faults with each call, which cost as much and differ from minute to minute.
STEADY_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}

# Threads of OpenMP that a GPU's worker has. One for each processor is usual. On a host with 64 they would have nothing
# to do, but each is stopped and continued between rounds, which is processor time beside what is timed.
THREADS_BESIDE_A_GPU = {"OMP_NUM_THREADS": "4"}

# Time between two looks at a process doubles from the first to the last, as in subprocess.Popen.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.0005, 0.05

# A zygote loads torch first, from a disk that may be slow.
START_TIMEOUT_S = 600.0


class Process(Protocol):
    """What a worker needs of its process."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


@dataclass(frozen=True)
class Start:
    """What a worker's process is started with.

    `writable` are the folders that Landlock leaves it, joined by os.pathsep; `output` takes what it prints; `files` are
    those of harness.worker.process.Descriptors."""

    device: str
    environment: Mapping[str, str]
    folder: Path
    writable: str
    output: int
    files: Sequence[int]


def environment(device: str) -> dict[str, str]:
    """What all workers of `device` have in their environment."""
    return (
        (THREADS_BESIDE_A_GPU if device == "cuda" else {})
        | {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        | (STEADY_MALLOC if device == "cpu" else {})
        | ({"OMP_WAIT_POLICY": "passive"} if device == "emulator" else {})
        | {
            # One kernel a model: a pool of compiler processes costs more than it saves, and outlives its use.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # Whoever can read a file can lock it, a submission too: torch.compile is then left out, and waits for less
            # than the ten minutes that are usual.
            "TORCHINDUCTOR_FILE_LOCK_TIMEOUT": "60",
            # Precompiled headers are kept below TMPDIR, which each worker has for itself: 6 s of each that compiles.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "PYTHONUSERBASE": site.getuserbase(),
            # Bytecode is read where it is, and written by the trusted compiler of baselines only.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )


class _Child:
    """A child of this process, asked for its end by one thread. subprocess.Popen asks under a lock, which Ctrl-C at the
    wrong moment leaves taken: whoever then waits for the end waits for ever."""

    _code: int | None = None

    @property
    def pid(self) -> int:
        raise NotImplementedError

    def poll(self) -> int | None:
        """The exit code, negative for the signal that ended it; None while it runs; 0 where it is lost, as with
        subprocess.Popen: an earlier question was interrupted before it could keep the answer."""
        if self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._code = 0
            else:
                self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired when it has none within `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        look_s = _FIRST_LOOK_S
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0.0)
            time.sleep(look_s)
            look_s = min(2 * look_s, _LAST_LOOK_S)
        return code


class Program(_Child):
    """A process that was started as a program."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        self._process.returncode = super().poll()  # so that its destructor has nothing to ask
        return self._code

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()


def start_program(start: Start, modules: Sequence[str], around: Sequence[str] = (), info: int | None = None) -> Program:
    """A program of its own that also loads `modules`. `around` are words before its command; that program inherits
    `info` and writes to it.

    Raises HarnessError when it cannot be started."""
    files = ",".join(map(str, start.files))
    command = [*around, sys.executable, "-P", "-m", "harness.worker", files]
    try:
        process = subprocess.Popen(
            [*command, start.device, str(emulator_cache()), start.writable, *modules],
            env=dict(start.environment),
            cwd=start.folder,
            stdin=subprocess.DEVNULL,
            stdout=start.output,
            stderr=start.output,
            pass_fds=[*start.files, *([] if info is None else [info])],
            start_new_session=True,
        )
    except OSError as error:
        raise HarnessError(f"A worker could not be started: {error.strerror}.") from error
    return Program(process)


class Forked(_Child):
    """A process that a zygote has forked or will fork: a child of this one."""

    def __init__(self, announcement: int, zygote: Zygote) -> None:
        """`announcement` is a file that its process number can be read from. The first need reads and closes it."""
        self._announcement = announcement
        self._zygote = zygote
        self._pid = 0

    @property
    def pid(self) -> int:
        """Raises HarnessError when it was not started."""
        if self._announcement >= 0:
            # If this is interrupted, what ends the workers asks again.
            poll = select.poll()
            poll.register(self._announcement, select.POLLIN)
            came = poll.poll(START_TIMEOUT_S * 1000)
            announcement, self._announcement = self._announcement, -1
            with os.fdopen(announcement, "rb") as file:
                self._pid = int(file.readline() or 0) if came else 0
        if not self._pid:
            raise HarnessError(f"A worker could not be started.{self._zygote.last_words()}")
        return self._pid


class Zygote:
    """The process that workers of one device are forked from (harness.worker.zygote)."""

    def __init__(self, device: str) -> None:
        """Starts it, and does not wait until it has loaded. Raises HarnessError when it cannot be started."""
        self._output = os.fdopen(os.memfd_create("kernelgate-zygote"), "rb")
        # Keeps each message apart, with its files.
        self._control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._environment = environment(device)
        command = [sys.executable, "-P", "-m", "harness.worker.zygote", str(theirs.fileno())]
        try:
            with theirs:
                process = subprocess.Popen(
                    [*command, device, str(emulator_cache())],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    pass_fds=[theirs.fileno()],
                )
        except OSError as error:
            raise HarnessError(f"A worker could not be started: {error.strerror}.") from error
        self._process = Program(process)
        self._handed_on = processes.handed_on(os.getpid())

    @property
    def is_sound(self) -> bool:
        """Whether it can still fork workers with the judge's limits. Only namespaces keep a submission from lowering
        these, and at the level `basic` it can also stop or end the zygote."""
        pid = self._process.pid
        if self._process.poll() is not None or processes.all_stopped([pid]):
            return False
        return processes.handed_on(pid) == self._handed_on

    def fork(self, start: Start) -> Forked:
        """A worker that it will have forked soon."""
        ours, theirs = os.pipe()
        own = dict(start.environment.items() - self._environment.items())
        asked = fork.Fork(own, str(start.folder), start.writable)
        try:
            with contextlib.suppress(OSError):  # if the zygote has ended, `Forked.pid` says so
                fork.send(self._control, asked, [start.output, theirs, *start.files])
        finally:
            os.close(theirs)
        return Forked(ours, self)

    def last_words(self) -> str:
        """The last line that it printed, as the end of a message; empty for none."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return f" It last printed: {lines[-1].strip()[:500]}" if lines else ""

    def end(self) -> None:
        """Workers that it has forked live on."""
        self._control.close()
        self._process.end()
