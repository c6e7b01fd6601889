"""Which device judges a submission, and opening it. Choosing is free of torch, so that it costs nothing."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from harness.device.memory_file import MemoryFile
from harness.errors import HarnessError
from harness.paths import emulator_cache
from harness.storage.disk import full_is_said
from harness.submission import Submission

if TYPE_CHECKING:
    from harness.device.base import Device


class NeedsGpu(HarnessError):
    """A submission whose kernels nothing but a GPU runs."""

    def __init__(self, submission: Submission) -> None:
        self.why = f"whose kernels are written in {submission.gpu_language}, which runs on a GPU alone"
        super().__init__(
            f"{submission.name} cannot be judged here: its kernels are written in {submission.gpu_language}, which "
            "runs on a GPU alone. Judge it on a machine that has one; the emulator runs CUDA C++."
        )


def choose_device(asked: str | None, submission: Submission) -> str:
    """`asked`, or: C++ without CUDA runs on the CPU; CUDA C++ on a GPU, else on the emulator; other kernels on a GPU;
    what has no kernels of its own on a GPU, else on the CPU. Raises NeedsGpu."""
    if asked != "cuda" and submission.gpu_language and (asked or not _has_gpu()):
        raise NeedsGpu(submission)
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


def _torch_is_cpu_build() -> bool:
    return importlib.metadata.version("torch").endswith("+cpu")


def can_time(device: str) -> bool:
    """The emulator gives verdicts and never times."""
    return device != "emulator"


def is_prepared(name: str, submissions: Sequence[Path], *, check: bool) -> bool:
    """Whether `prepare_device` has nothing to build."""
    if name != "emulator":
        return True
    from harness.device import emulator

    try:
        return emulator.is_prepared(emulator_cache(), submissions, check=check)
    except (emulator.Missing, OSError):  # preparing it says what is wrong
        return True


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
        raise HarnessError(f"The emulator cannot be used here: {error}") from error


@contextlib.contextmanager
def prepared_beside(
    name: str, submissions: Sequence[Path], later: Sequence[Path], *, check: bool
) -> Iterator[Callable[[], None]]:
    """Prepare the device for these submissions too, and for `later` ones behind them, while others are judged on it.
    Gives what waits until it is done for `submissions`, and raises HarnessError as `prepare_device` does."""
    if name != "emulator" or is_prepared(name, [*submissions, *later], check=check):
        yield lambda: None
        return
    from harness.device.emulator import ended_by_failure

    with ThreadPoolExecutor(1) as pool, ended_by_failure():
        prepared, _ = [
            pool.submit(prepare_device, name, paths, check=check, on_build=lambda: None)
            for paths in (submissions, later)
        ]
        yield prepared.result


def open_device(name: str, memory: MemoryFile) -> Device:
    """Raises HarnessError when there is no such device here."""
    if name == "cuda":
        from harness.device.cuda import CudaDevice

        return CudaDevice()
    from harness.device.host import HostDevice

    return HostDevice(name, memory)
