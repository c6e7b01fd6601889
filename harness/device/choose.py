"""Which device judges a submission, and opening it. Choosing is free of torch, so that it costs nothing."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.device.memory_file import MemoryFile
from harness.errors import HarnessError
from harness.paths import cache_root, emulator_cache
from harness.storage.disk import full_is_said
from harness.submission import Submission

if TYPE_CHECKING:
    from harness.device.base import Device

# How often somebody who waits for a device does something meanwhile, or looks whether he is to end.
MEANWHILE_S = 1.0

WaitForDevice = Callable[[Callable[[], None]], None]
"""Waits until a device is prepared, and calls what it is given now and then meanwhile."""


class CannotRun(HarnessError):
    """A submission that the device cannot run; `why` follows its name."""

    why: str


class NeedsGpu(CannotRun):
    """A submission whose kernels nothing but a GPU runs."""

    def __init__(self, submission: Submission) -> None:
        self.why = f"whose kernels are written in {submission.gpu_language}, which runs on a GPU alone"
        super().__init__(
            f"{submission.name} cannot be judged here: its kernels are written in {submission.gpu_language}, which "
            "runs on a GPU alone. Judge it on a machine that has one; the emulator runs CUDA C++."
        )


class NeedsCuda(CannotRun):
    """A submission with CUDA kernels, and the CPU was asked for."""

    def __init__(self, submission: Submission) -> None:
        self.why = "which has CUDA kernels, and --device cpu cannot run them"
        super().__init__(
            f"{submission.name} cannot be judged here: it has CUDA kernels, which --device cpu cannot run. Leave "
            "--device out: without a GPU the emulator runs them."
        )


def choose_device(asked: str | None, submission: Submission) -> str:
    """`asked`, or: C++ without CUDA runs on the CPU; CUDA C++ on a GPU, else on the emulator; other kernels on a GPU;
    what has no kernels of its own on a GPU, else on the CPU. Raises CannotRun."""
    if asked != "cuda" and submission.gpu_language and (asked or not _has_gpu()):
        raise NeedsGpu(submission)
    if asked == "cpu" and submission.brings_cuda:
        raise NeedsCuda(submission)
    if asked:
        return asked
    if submission.is_host_code:
        return "cpu"
    if _has_gpu():
        return "cuda"
    return "emulator" if submission.uses_cuda else "cpu"


def usual_device() -> str:
    """Where kernels are judged here when nobody says otherwise."""
    return "cuda" if _has_gpu() else "emulator"


def _has_gpu() -> bool:
    """Whether there is one, and a torch that can use it."""
    return bool(_gpu_count()) and not _torch_is_cpu_build()


def _gpu_count() -> int:
    """GPUs that the driver shows; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def visible_gpus() -> list[str]:
    """The GPUs that submissions can be judged on here, as CUDA_VISIBLE_DEVICES names each."""
    if not _has_gpu():
        return []
    count = _gpu_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    return [name.strip() for name in named.split(",")][:count]


def _torch_is_cpu_build() -> bool:
    return importlib.metadata.version("torch").endswith("+cpu")


def can_time(device: str) -> bool:
    """The emulator gives verdicts and never times."""
    return device != "emulator"


def is_prepared(name: str, submissions: Sequence[Path], *, check: bool) -> bool:
    """Whether `prepare_device` has nothing to build."""
    return not unprepared(name, submissions, check=check)


def unprepared(name: str, submissions: Sequence[Path], *, check: bool) -> int:
    """How many parts `prepare_device` would build."""
    if name != "emulator":
        return 0
    from harness.device import emulator

    try:
        return len(emulator.unprepared(emulator_cache(), submissions, check=check))
    except (emulator.Missing, OSError):  # preparing it says what is wrong
        return 0


def prepare_device(name: str, submissions: Sequence[Path], *, check: bool, on_build: Callable[[], None]) -> None:
    """Build what workers of the device read and must not write for these submissions; `on_build` is called where that
    takes a while. Raises HarnessError when it cannot be built."""
    if name != "emulator":
        return
    from harness.device.emulator import CompilerError, Missing, is_prepared, prepare

    try:
        with full_is_said():
            if not is_prepared(emulator_cache(), submissions, check=check):
                on_build()
            prepare(emulator_cache(), submissions, check=check)
    except CompilerError as error:
        said = "\n".join(error.log.strip().splitlines()[:5])
        raise HarnessError(f"The emulator cannot be used here, since it does not compile:\n{said}") from error
    except (Missing, OSError) as error:
        why = _of_the_cache(error) if isinstance(error, OSError) else ""
        raise HarnessError(f"The emulator cannot be used here: {why or error}") from error


def _of_the_cache(error: OSError) -> str:
    """What to say where the cache cannot be made or written; nothing where the error is about something else."""
    root, place = cache_root(), Path(str(error.filename))
    if not (place.is_relative_to(root) or root.is_relative_to(place)):
        return ""
    return (
        f"it is built in the cache {root}, which cannot be written: {error.strerror} ({place}). Set "
        "KERNELGATE_CACHE to another folder."
    )


class Preparing:
    """Prepares the device for submissions while others are judged on it, in the order of asking. Leaving it waits for
    all that has begun; an error ends it."""

    def __init__(self, *, check: bool) -> None:
        self._check = check
        self._open = contextlib.ExitStack()
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[None]] = []

    def begin(self, name: str, submissions: Sequence[Path]) -> WaitForDevice:
        """Gives what waits until the device is prepared for these, and raises HarnessError as `prepare_device` does."""
        if is_prepared(name, submissions, check=self._check):
            return lambda meanwhile: None
        prepare = partial(prepare_device, name, submissions, check=self._check, on_build=lambda: None)
        self._begun.append(self._thread().submit(prepare))
        return partial(_wait_for, self._begun[-1])

    def finish(self) -> None:
        """Wait until nothing is prepared any more."""
        while wait(self._begun, MEANWHILE_S).not_done:
            pass

    def _thread(self) -> ThreadPoolExecutor:
        if not self._pool:
            from harness.device.emulator import ended_by_failure

            self._pool = self._open.enter_context(ThreadPoolExecutor(1))
            self._open.enter_context(ended_by_failure())
        return self._pool

    def __enter__(self) -> Preparing:
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: Any) -> None:
        if kind:
            for prepared in self._begun:
                prepared.cancel()
        self._open.__exit__(kind, *about)


def _wait_for(prepared: Future[None], meanwhile: Callable[[], None]) -> None:
    while not prepared.done():
        meanwhile()
        wait([prepared], MEANWHILE_S)
    prepared.result()


def open_device(name: str, memory: MemoryFile) -> Device:
    """Raises HarnessError when there is no such device here."""
    if name == "cuda":
        from harness.device.cuda import CudaDevice

        return CudaDevice()
    from harness.device.host import HostDevice

    return HostDevice(name, memory)
