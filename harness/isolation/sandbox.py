"""Starting, bounding and ending a worker.

A worker is a process in a session of its own, isolated as harness.isolation.levels chose, with a private home,
cache and temporary folder, an environment that carries nothing but what compilers and CUDA need, and standard
streams that go to a file. It is asked one thing at a time, with a limit on time, memory, processes and disk, can be
held still while others are timed, and ends with everything that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import psutil

from harness.errors import HarnessError, SubmissionError
from harness.isolation import bubblewrap, builds, processes
from harness.isolation.launch import Process, Start, Zygote, environment, start_program
from harness.isolation.levels import Isolation
from harness.paths import build_cache, compile_cache
from harness.protocol.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from harness.protocol.handshake import Handshake, PeerStatus
from harness.protocol.wire import Reply, Request
from harness.reasons import Reason
from harness.storage import cache, disk
from harness.storage.limits import bytes_of

# How often it is looked at what a silent worker holds.
POLL_S = 0.05

# The emulator is compiled at its first use, which takes a minute on two cores.
STARTUP_TIMEOUT_S = 600.0

# Beyond this share of the machine's memory a worker is stopped before the system stops something else.
MEMORY_FRACTION = 0.75

# Smaller limits for memory and disk, in GiB, are taken from these variables.
MEMORY_VARIABLE, DISK_VARIABLE = "KERNELGATE_MEMORY_GIB", "KERNELGATE_DISK_GIB"

# Memory can be held where no process shows it: when less than this share is left, the worker that is asked ends.
MEMORY_LEFT_FRACTION = 0.03

# nvcc starts some ten processes for each of two sources.
MAX_PROCESSES = 128

MAX_DISK_BYTES = 4 << 30

OUTPUT_TAIL_BYTES = 4000

# A family that starts processes while it is being ended is ended again; a fork bomb takes a few passes.
ENDING_PASSES = 200

# A process that was killed ends within milliseconds; one that has not by then is traced, or gives gigabytes back.
ENDING_LOOK_S = 0.5

# How long threads may wait for a core to take their stop on, and how often it is looked whether they have. What stands
# still uses no processor from there on (0.0 us in each of 111 holds with both cores busy); so much is allowed it all
# the same, less than it takes to start a process that works instead.
STOP_TIMEOUT_S, STOP_LOOK_S = 5.0, 0.0005
HELD_PROCESSOR_S = 1e-4

_PR_SET_CHILD_SUBREAPER = 36

# As they were before there was a submission, which can change them where the judge has no more privileges than it.
_PROCESSORS = os.sched_getaffinity(0)


def _adopt_orphans() -> None:
    """Children that a worker leaves behind become ours, so that none escapes being ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kept_by_compilers() -> list[Path]:
    """Where the trusted compiler of baselines may write: what it compiled, and bytecode if that lies apart."""
    bytecode = os.environ.get("PYTHONPYCACHEPREFIX")
    return [compile_cache(), *([Path(bytecode)] if bytecode else [])]


class Worker:
    """One worker process. Use as a context manager, or call `end`."""

    _alive: set[Worker] = set()  # noqa: RUF012  every worker of this process

    def __init__(
        self,
        device: str,
        arena_fd: int,
        isolation: Isolation,
        readable: Sequence[Path] = (),
        *,
        zygote: Zygote | None = None,
        keeps_compile_cache: bool = False,
    ) -> None:
        """Forked from `zygote`, or a program of its own without one."""
        _adopt_orphans()
        self._ready = False
        self._stopped: set[int] = set()
        self._held_before: frozenset[int] = frozenset()
        self._started_before: int | None = None
        self._processor_s: dict[int, float] = {}
        self._device = device
        self._isolation = isolation
        self._inner_pid = 0
        self._info = -1
        self.home = Path(os.path.realpath(tempfile.mkdtemp(prefix="kernelgate-", dir=disk.temporary_folder())))
        # Kept open: a submission can put something else under the file's name.
        self._log = os.open(self.home / "output", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._free_at_start = self._free_bytes()
        self._shared_at_start = psutil.virtual_memory().shared
        writable = _kept_by_compilers() if keeps_compile_cache else []
        for folder in (*writable, self.home / "work"):
            folder.mkdir(parents=True, exist_ok=True)
            cache.mark_used(folder)
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours, judge=True)
        self.handshake = Handshake.create(spins=device == "cuda")
        with theirs:
            start = Start(
                device=device,
                environment=environment(device) | self._own_environment(keeps_compile_cache),
                folder=self.home / "work",
                writable=self._landlocked(writable),
                output=self._log,
                files=(theirs.fileno(), arena_fd, *self.handshake.fds),
            )
            modules = ["torch._inductor.compile_fx"] if keeps_compile_cache else []
            program = partial(self._program, start, modules, readable, writable)
            try:
                self._process: Process = zygote.fork(start) if zygote else program()
            except HarnessError:
                _remove(self.home)
                raise
        self.handshake.started()
        self._ended = False
        Worker._alive.add(self)

    def _program(
        self, start: Start, modules: Sequence[str], readable: Sequence[Path], writable: Sequence[Path]
    ) -> Process:
        """A program of its own. Raises HarnessError when it cannot be started."""
        self._info, info = os.pipe()
        try:
            return start_program(start, modules, self._bubblewrap(readable, writable, info), info)
        finally:
            os.close(info)

    def _bubblewrap(self, readable: Sequence[Path], writable: Sequence[Path], info: int) -> list[str]:
        """The words before the worker's command; none without namespaces."""
        if self._isolation.level != "namespaces":
            return []
        return bubblewrap.in_home(self._isolation.system_words(readable), self.home, writable, info)

    @property
    def pid(self) -> int:
        """The process that runs the worker's code. Raises HarnessError when it could not be started."""
        if not self._inner_pid and self._isolation.level == "namespaces":
            try:
                self._inner_pid = bubblewrap.inner_pid(self._info, self._isolation.private_tree)
            except (OSError, ValueError):
                raise HarnessError(
                    f"A worker could not be started with the isolation '{self._isolation.level}'."
                    f"{self.output_tail()} --isolation basic does without."
                ) from None
            finally:
                self._info = -1
        return self._inner_pid or self._process.pid

    def _landlocked(self, writable: Sequence[Path]) -> str:
        """The folders that Landlock leaves writable, as the worker's argument; empty for no Landlock."""
        if not self._isolation.landlock_abi:
            return ""
        # CUDA keeps what it shares between processes in /dev/shm, and does not start where it cannot write to /proc.
        folders = ["/dev/shm", "/proc"] if self._device == "cuda" else []
        return os.pathsep.join(map(str, (self.home, *writable, *folders)))

    def _folder(self, name: str) -> str:
        (self.home / name).mkdir(exist_ok=True)
        return str(self.home / name)

    def _own_environment(self, keeps_compile_cache: bool) -> dict[str, str]:
        compiled = compile_cache() if keeps_compile_cache else Path(self._folder("cache"))
        return {
            "HOME": self._folder("home"),
            "TMPDIR": self._folder("tmp"),
            "XDG_CACHE_HOME": self._folder("cache"),
            "CUDA_CACHE_PATH": self._folder("cache"),
            "TORCH_EXTENSIONS_DIR": self._folder("cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor"),
            "TRITON_CACHE_DIR": str(compiled / "triton"),
            **({"PYTHONDONTWRITEBYTECODE": ""} if keeps_compile_cache else {}),
        }

    # -------------------------------------------------------------- files

    def place(self, name: str, data: bytes) -> Path:
        """Put a file where the worker can read it; returns its path there. A submission is judged from this copy,
        so that it stays what was read, and sees nothing that lies beside it."""
        path = Path(self._folder("submission")) / name
        path.write_bytes(data)
        return path

    def lend_builds(self, sha256: str) -> Path:
        """Give the worker what the file of this hash built before; returns the folder for builds."""
        builds.lend(build_cache(sha256), self.home / "build")
        return self.home / "build"

    def keep_builds(self, sha256: str) -> None:
        """Keep what was built, for the next worker that loads the same file."""
        builds.keep(self.home / "build", build_cache(sha256))

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
        """Send a request; `hear` reads the reply. Raises SubmissionError when the worker is gone, or has spoken
        before it was asked. While it starts, nothing of a submission has run, and it may be told ahead."""
        if self._ended:
            raise SubmissionError(Reason.EXITED, "The process that ran it had been ended before.")
        if self._stopped:
            self._resume()
        if self._ready and self._channel.unread():
            self.end()
            raise SubmissionError(Reason.BAD_MESSAGE, "The worker sent something that it was not asked for.")
        try:
            self._channel.send(request)
        except ChannelClosed:
            raise self._death() from None

    def wait_for_warm_up(self, timeout_s: float) -> None:
        """Wait until a worker that was told to play waits for its first buffer. One that answers instead, or does
        not come back, is found out by `hear`."""
        self.handshake.wait_until_ready(timeout_s, self._other())

    def hand_out(self, buffers: list[int], timeout_s: float) -> None:
        """Hand `buffers` out one by one to a worker that was told to play; `hear` gives its reply."""
        self.handshake.hand_out(buffers, timeout_s, self._other())

    def _other(self) -> PeerStatus:
        return PeerStatus(self._channel.fileno(), lambda: self.has_answered, self._check_holdings)

    @property
    def has_answered(self) -> bool:
        """Whether `hear` would wait for nothing."""
        return self._channel.spin(0.0)

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
                self._check_holdings()
            return self._channel.receive(max(deadline - time.monotonic(), 1.0))
        except ChannelTimeout:
            self.end()
            raise SubmissionError(
                Reason.TIMED_OUT, f"No answer came within {timeout_s:g} s; --timeout gives it longer."
            ) from None
        except BadMessage as error:
            self.end()
            raise SubmissionError(Reason.BAD_MESSAGE, f"The worker sent something that is no reply: {error}.") from None
        except ChannelClosed:
            raise self._death() from None

    def ask(self, request: Request, timeout_s: float) -> Reply:
        self.tell(request)
        return self.hear(timeout_s)

    def _check_holdings(self) -> None:
        """End a worker that holds more than its share of the machine, and say of what."""
        family = self._family(MAX_PROCESSES)
        if len(family) > MAX_PROCESSES:
            self._end_for(Reason.TOO_MANY_PROCESSES, f"It ran more than {MAX_PROCESSES} processes at a time.")
        memory = psutil.virtual_memory()
        # What lies in memory files belongs to no process; the arena, which is the judge's, is small beside the limit.
        in_files = max(memory.shared - self._shared_at_start, 0)
        used, limit = processes.resident_bytes(family) + in_files, _memory_limit(memory.total)
        if used > limit:
            self._end_for(
                Reason.OUT_OF_MEMORY,
                f"It held {used / 2**30:.1f} GiB of memory; {limit / 2**30:.1f} GiB is the limit on this machine.",
            )
        if memory.available < memory.total * MEMORY_LEFT_FRACTION:
            self._end_for(Reason.OUT_OF_MEMORY, "While it ran, the machine's memory was nearly used up.")
        # One cheap question; only when the answer is suspicious is the folder walked through.
        most = bytes_of(DISK_VARIABLE, MAX_DISK_BYTES)
        if self._free_at_start - self._free_bytes() > most and self._has_written(most):
            self._end_for(Reason.TOO_MUCH_DISK, f"It wrote more than {most / 2**30:.3g} GiB of files.")

    def _free_bytes(self) -> int:
        """Room where it writes, asked by an open file: at the level `basic` it can remove its own folder."""
        about = os.fstatvfs(self._log)
        return about.f_bavail * about.f_frsize

    def _has_written(self, size: int) -> bool:
        return disk.folder_bytes(self.home) >= size

    def require_room(self) -> None:
        """Raises HarnessError when others have filled the disk: what failed then says nothing about a submission."""
        if not self._has_written(disk.MIN_FREE_BYTES):
            disk.temporary_folder()

    def _end_for(self, reason: Reason, message: str) -> NoReturn:
        self.end()
        raise SubmissionError(reason, message)

    def _death(self) -> SubmissionError:
        """What ended the worker, as the error to raise."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.poll()
        if code is None:
            self._end_for(
                Reason.EXITED, f"The process that ran it closed its connection to the judge.{self.output_tail()}"
            )
        tail = self.output_tail()
        self.end()
        if code is not None and (code < 0 or (self._isolation.level == "namespaces" and code > 128)):
            number = -code if code < 0 else code - 128  # bubblewrap passes a signal on as a shell does
            name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            return SubmissionError(Reason.CRASHED, f"The process that ran it was ended by {name}.{tail}")
        return SubmissionError(
            Reason.EXITED, f"The process that ran it exited with code {code} before answering.{tail}"
        )

    def output_tail(self, lines: int = 3) -> str:
        """The last lines that the worker printed, as the end of a message; empty for none."""
        try:
            start = max(os.fstat(self._log).st_size - OUTPUT_TAIL_BYTES, 0)
            text = os.pread(self._log, OUTPUT_TAIL_BYTES, start).decode(errors="replace").strip()
        except OSError:
            return ""
        last = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
        return f" It last printed: {' / '.join(last)[:500]}" if last else ""

    # -------------------------------------------------------------- holding still

    def pause(self) -> None:
        """Stop the worker until it is told something, so that none of it runs while something else is timed.

        Raises SubmissionError when it has processes beside the one that runs it."""
        if not self._stops_as_before():
            self._stop_everything()
        self._wait_until_stopped()
        self._processor_s = processes.processor_s(self._stopped)

    def regain_processors(self) -> None:
        """Let it run wherever the judge may. Where a submission sees it and has its user it can confine it to one core
        before it is held still itself."""
        if not self._isolation.private_tree:
            processes.let_run_on(_PROCESSORS, self.pid)

    def _stop_everything(self) -> None:
        started = processes.started_so_far()
        self._stopped = stopped = set[int]()
        while fresh := set(self._everything()) - stopped:  # what was started meanwhile is found by looking again
            processes.send(fresh, signal.SIGSTOP)
            stopped |= fresh
        extra = len(stopped - processes.zombies(stopped)) - self._own_processes
        if extra > 0:
            self._end_for(
                Reason.EXTRA_PROCESSES,
                f"{extra} processes that it started were running between its timed calls. They slow whatever else is "
                "timed; end them before forward returns.",
            )
        self._held_before, self._started_before = frozenset(stopped), started

    def _stops_as_before(self) -> bool:
        """Stop what was stopped last time; whether that is everything, because nothing was started since on the whole
        machine. To read a process tree takes milliseconds, and there are hundreds of rounds."""
        started = processes.started_so_far()
        if started is None or not self._held_before or started != self._started_before:
            return False
        processes.send(self._held_before, signal.SIGSTOP)
        self._stopped = set(self._held_before)
        return processes.started_so_far() == started

    def _wait_until_stopped(self) -> None:
        """Raises SubmissionError when it does not stand still."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not processes.all_stopped(self._stopped):
            if time.monotonic() > deadline:
                self._end_for(Reason.RAN_WHILE_HELD, _RAN_WHILE_HELD)
            time.sleep(STOP_LOOK_S)

    @property
    def _own_processes(self) -> int:
        """The worker, and bubblewrap outside and, as the first of a process tree, inside."""
        if self._isolation.level != "namespaces":
            return 1
        return 3 if self._isolation.private_tree else 2

    def _resume(self) -> None:
        """Raises SubmissionError when it did not stand still since `pause`: a process can have itself continued, by a
        timer of the kernel for one."""
        now_s = processes.processor_s(self._stopped)
        ran = [pid for pid, before_s in self._processor_s.items() if now_s.get(pid, 0.0) - before_s > HELD_PROCESSOR_S]
        if set(ran) - processes.zombies(ran):  # a dying process uses some, too
            self._end_for(Reason.RAN_WHILE_HELD, _RAN_WHILE_HELD)
        processes.send(self._stopped, signal.SIGCONT)
        self._stopped = set()

    # -------------------------------------------------------------- ending

    @property
    def exists(self) -> bool:
        """Whether its process was started at all; waits until that is known."""
        try:
            return self._process.pid > 0
        except HarnessError:
            return False

    def _family(self, at_most: int = 1 << 20) -> list[int]:
        return processes.family(self._process.pid, at_most)

    def _everything(self) -> list[int]:
        """The family, and what came to the judge when its parents in a family died."""
        return self._family() + [pid for orphan in self._orphans() for pid in processes.family(orphan)]

    def _orphans(self) -> list[int]:
        # One that is being forked must have its number first: until then it looks like somebody's orphan.
        known = {worker._process.pid for worker in {*Worker._alive, self} if worker.exists}
        return processes.adopted(keep=known)

    def kill(self) -> None:
        """Have the worker's group killed without waiting for it; `end` does the rest."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the worker, its group, its descendants and its orphans, and remove its folders."""
        if self._ended:
            return
        self._ended = True
        Worker._alive.discard(self)
        if self.exists:
            family = self._family()
            self.kill()
            processes.send(family, signal.SIGKILL)
            self._wait_for_its_end()
            self._end_orphans()
        self._channel.close()
        self.handshake.close()
        for descriptor in (self._log, self._info):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._info = -1
        _remove(self.home)

    @classmethod
    def end_all(cls) -> None:
        """End all that live: workers that nobody took, and those of somebody whom an error ended."""
        for worker in list(cls._alive):
            worker.end()

    def _wait_for_its_end(self) -> None:
        """An orphan that traces it as a debugger does keeps its end from us for as long as the orphan lives."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=ENDING_LOOK_S)
                return
            for orphan in self._orphans():
                processes.send(processes.family(orphan), signal.SIGKILL)

    def _end_orphans(self) -> None:
        """Kill what processes of the family left to the judge, until there is nothing more."""
        for _ in range(ENDING_PASSES):
            orphans = self._orphans()
            if not orphans:
                return
            processes.send([pid for orphan in orphans for pid in processes.family(orphan)], signal.SIGKILL)
            for orphan in orphans:
                with contextlib.suppress(psutil.Error):
                    psutil.Process(orphan).wait(timeout=5)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()


_RAN_WHILE_HELD = (
    "It was stopped while others were timed, and went on all the same. Nothing of it may run between its calls."
)


def _memory_limit(total: int) -> int:
    return min(bytes_of(MEMORY_VARIABLE, total), int(total * MEMORY_FRACTION))


def _remove(folder: Path) -> None:
    """Remove a folder that a submission could write to: however deep, whatever its permissions."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*command, "--", str(folder)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
