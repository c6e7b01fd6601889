"""Which device judges a submission, and opening it. Choosing is free of torch, so that it costs nothing."""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.device.memory_file import MemoryFile
from harness.errors import HarnessError
from harness.paths import emulator_cache
from harness.storage.disk import full_is_said

if TYPE_CHECKING:
    from harness.device.base import Device


def choose_device(asked: str | None, uses_cuda: bool) -> str:
    """`asked`, or: a submission without CUDA runs on the CPU; one with it on a GPU, else on the emulator."""
    if asked:
        return asked
    if not uses_cuda:
        return "cpu"
    return "cuda" if _gpu_count() and not _torch_is_cpu_build() else "emulator"


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


def open_device(name: str, memory: MemoryFile) -> Device:
    """Raises HarnessError when there is no such device here."""
    if name == "cuda":
        from harness.device.cuda import CudaDevice

        return CudaDevice()
    from harness.device.host import HostDevice

    return HostDevice(name, memory)
