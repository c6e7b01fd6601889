"""Starting, bounding and ending a worker.

A worker is a process in a session and process group of its own, with a private home, cache and
temporary folder, an environment that carries nothing but what compilers and CUDA need, and standard
streams that go to a file. It is asked one thing at a time, with a limit on time and memory, and ends
with everything that it started. What this does not cover: the same user's files can be read, and the
network used; docs/judging.md says so to users.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from harness.errors import HarnessError, SubmissionError
from harness.paths import ROOT, compile_cache, emulator_cache
from harness.turns import Turns
from harness.wire import BadMessage, Channel, ChannelClosed, ChannelTimeout, Reply, Request

# Variables that a worker may see: what finds compilers, CUDA and the device, and nothing else.
KEPT_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS", "VIRTUAL_ENV", "PYTHONPYCACHEPREFIX",
)  # fmt: skip

# How often a silent worker's memory is looked at.
POLL_S = 0.05

# On the CPU memory that was freed stays with the process, as PyTorch's allocator keeps a GPU's: what is timed is
# then the call and not the system's page faults, which cost as much and differ from minute to minute.
STEADY_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}

# The emulator is compiled at its first use, which takes a minute on two cores.
STARTUP_TIMEOUT_S = 600.0

# Beyond this share of the machine's memory a worker is stopped before the system stops something else.
MEMORY_FRACTION = 0.75

_PR_SET_CHILD_SUBREAPER = 36


def _adopt_orphans() -> None:
    """Children that a worker leaves behind become ours, so that none escapes being ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Worker:
    """One worker process. Use as a context manager, or call `end`."""

    _alive: dict[int, Worker] = {}  # noqa: RUF012  every worker of this process, by pid

    def __init__(self, device: str, arena_fd: int, *, keeps_compile_cache: bool = False) -> None:
        _adopt_orphans()
        self._ready = False
        self._device = device
        self.home = Path(tempfile.mkdtemp(prefix="kernelgate-"))
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours, judge=True)
        self.turns = Turns.create(spins=device == "cuda")
        with theirs, open(self.home / "output", "wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "harness.worker"),
                    *(str(theirs.fileno()), str(arena_fd), str(self.turns), device, str(emulator_cache())),
                    *(["torch._inductor.compile_fx"] if keeps_compile_cache else []),
                ],
                env=self._environment(keeps_compile_cache),
                cwd=self._folder("work"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(), arena_fd, *self.turns.fds),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._ended = False
        Worker._alive[self.pid] = self

    def _folder(self, name: str) -> str:
        (self.home / name).mkdir(exist_ok=True)
        return str(self.home / name)

    def _environment(self, keeps_compile_cache: bool) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        compiled = compile_cache() if keeps_compile_cache else Path(self._folder("cache"))
        return (
            kept
            | (STEADY_MALLOC if self._device == "cpu" else {})
            | {
                "HOME": self._folder("home"),
                "TMPDIR": self._folder("tmp"),
                "XDG_CACHE_HOME": self._folder("cache"),
                "CUDA_CACHE_PATH": self._folder("cache"),
                "TORCH_EXTENSIONS_DIR": self._folder("cache"),
                "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor"),
                "TRITON_CACHE_DIR": str(compiled / "triton"),
                # One kernel a model: a pool of compiler processes costs more than it saves, and outlives its use.
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
                "PYTHONUSERBASE": site.getuserbase(),
                # Bytecode is read where it is, and written by the trusted compiler of baselines only.
                "PYTHONDONTWRITEBYTECODE": "" if keeps_compile_cache else "1",
            }
        )

    # -------------------------------------------------------------- asking

    def wait_until_ready(self) -> None:
        """Wait until the worker has loaded torch and reached its device, before it sees any submission.

        Raises HarnessError: what fails here is not a submission's doing."""
        if self._ready:
            return
        try:
            self.hear(STARTUP_TIMEOUT_S)
        except SubmissionError as error:
            raise HarnessError(f"A worker could not be started: {error.message}") from error
        self._ready = True

    def tell(self, request: Request) -> None:
        """Send a request; `hear` reads the reply. Raises SubmissionError when the worker is gone."""
        try:
            self._channel.send(request)
        except ChannelClosed:
            raise self._death() from None

    def hand_out(self, slots: list[int], timeout_s: float) -> None:
        """Hand `slots` out one by one to a worker that was told to play; `hear` gives its reply."""
        self.turns.hand_out(slots, timeout_s, self._channel.fileno(), lambda: self._channel.spin(0.0))

    def hear(self, timeout_s: float, spin_s: float = 0.0) -> Reply:
        """The reply to the last request, waited for without sleeping for `spin_s`.

        Raises SubmissionError with the reason crashed, exited, timed_out, out_of_memory or bad_message; the
        worker has then been ended.
        """
        deadline = time.monotonic() + timeout_s
        try:
            ready = spin_s > 0 and self._channel.spin(spin_s)
            while not ready and not self._channel.wait(min(POLL_S, max(deadline - time.monotonic(), 0.001))):
                if time.monotonic() > deadline:
                    raise ChannelTimeout
                self._check_memory()
            return self._channel.receive(max(deadline - time.monotonic(), 1.0))
        except ChannelTimeout:
            self.end()
            raise SubmissionError(
                "timed_out", f"No answer came within {timeout_s:g} s; --timeout gives it longer."
            ) from None
        except BadMessage as error:
            self.end()
            raise SubmissionError("bad_message", f"The worker sent something that is no reply: {error}.") from None
        except ChannelClosed:
            raise self._death() from None

    def ask(self, request: Request, timeout_s: float) -> Reply:
        self.tell(request)
        return self.hear(timeout_s)

    def _check_memory(self) -> None:
        used = 0
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                used += process.memory_info().rss
        limit = int(psutil.virtual_memory().total * MEMORY_FRACTION)
        if used > limit:
            self.end()
            raise SubmissionError(
                "out_of_memory",
                f"It held {used / 2**30:.1f} GiB of memory; {limit / 2**30:.1f} GiB is the limit on this machine.",
            )

    def _death(self) -> SubmissionError:
        """What ended the worker, as the error to raise."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.poll()
        tail = self.output_tail()
        self.end()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return SubmissionError("crashed", f"The process that ran it was ended by {name}.{tail}")
        return SubmissionError("exited", f"The process that ran it exited with code {code} before answering.{tail}")

    def output_tail(self, lines: int = 3) -> str:
        """The last lines that the worker printed, as the end of a message; empty for none."""
        try:
            text = (self.home / "output").read_bytes()[-4000:].decode(errors="replace").strip()
        except OSError:
            return ""
        last = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
        return f" It last printed: {' / '.join(last)[:500]}" if last else ""

    # -------------------------------------------------------------- ending

    def _family(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []

    def kill(self) -> None:
        """Have the worker's group killed without waiting for it; `end` does the rest."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the worker, its group, its descendants and its orphans, and remove its folders."""
        if self._ended:
            return
        self._ended = True
        family = self._family()
        self.kill()
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()
        Worker._alive.pop(self.pid, None)
        _kill_orphans(keep=set(Worker._alive))
        self._channel.close()
        self.turns.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()


def _kill_orphans(keep: set[int]) -> None:
    """End adopted processes: direct children of ours that are sessions' or groups' leftovers of workers.

    Only processes whose command line or group shows that a worker started them come to us by adoption;
    our own children are the workers in `keep` and subprocesses that are waited for where they start.
    """
    me = os.getpid()
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.pid in keep or os.getpgid(process.pid) == os.getpgid(me):
                continue
            for descendant in process.children(recursive=True):
                descendant.kill()
            process.kill()
            process.wait(timeout=5)


class Starter:
    """Starts workers for one device; some of them ahead, while the judge itself still loads."""

    def __init__(self, device: str, arena_fd: int) -> None:
        self._device = device
        self._arena_fd = arena_fd
        self._waiting: dict[bool, list[Worker]] = {False: [], True: []}

    def start_ahead(self, workers: int, compilers: int) -> None:
        """Start `workers`, and `compilers` more that keep the compile cache."""
        for keeps, count in ((False, workers), (True, compilers)):
            self._waiting[keeps] += [self._start(keeps) for _ in range(count)]

    def take(self, *, keeps_compile_cache: bool = False) -> Worker:
        """A worker that nobody else has, which may still be loading."""
        waiting = self._waiting[keeps_compile_cache]
        return waiting.pop() if waiting else self._start(keeps_compile_cache)

    def _start(self, keeps_compile_cache: bool) -> Worker:
        return Worker(self._device, self._arena_fd, keeps_compile_cache=keeps_compile_cache)

    def end(self) -> None:
        """End the workers that nobody took."""
        for worker in [*self._waiting[False], *self._waiting[True]]:
            worker.end()
