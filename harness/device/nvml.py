"""What NVML, NVIDIA's management library, sees of a GPU: clocks and what holds them down, heat, power and processes.

On an H200 a look took 0.4 to 0.7 ms, most of it for the processes, which few looks ask for. How long clocks were held
down in all (nvmlDeviceGetViolationStatus) would take 0.6 to 2.8 ms more for each reason, and is not asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.errors import KernelgateError
from harness.records import ClockLimit

# Bits of nvmlDeviceGetCurrentClocksEventReasons: nvml.h, "nvmlClocksEventReasons".
CLOCK_LIMITS = {
    0x001: ClockLimit.IDLE,
    0x002: ClockLimit.APPLICATION_CLOCKS,
    0x004: ClockLimit.POWER_CAP,
    0x008: ClockLimit.SLOWDOWN,
    0x010: ClockLimit.SYNC_BOOST,
    0x020: ClockLimit.THERMAL,
    0x040: ClockLimit.HARDWARE_THERMAL,
    0x080: ClockLimit.POWER_BRAKE,
    0x100: ClockLimit.DISPLAY_CLOCKS,
    0x200: ClockLimit.BOARD_LIMIT,
    0x400: ClockLimit.RELIABILITY,
}


# Processes are asked for again after so long. Whoever begins to compute makes a context first, which takes 0.1 s or
# more: no process comes and goes unseen.
PROCESSES_AGE_S = 0.05


class NoNvml(KernelgateError):
    """NVML cannot be asked here; the text is a sentence that says why."""


@dataclass(frozen=True)
class Seen:
    """One look at a GPU; None stands for what NVML does not tell here."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_limits: frozenset[ClockLimit] | None = None
    processes: frozenset[int] | None = None
    """The processes that compute on it, by numbers that need not be this system's: in a container they may be the
    host's."""


class Watch:
    """Looks at one GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """`nvml` is the module pynvml, which has been initialised."""
        self._nvml = nvml
        self._handle = handle
        self._power_limit_w = self._watts(nvml.nvmlDeviceGetEnforcedPowerLimit)
        self._pids: frozenset[int] | None = None
        self._asked_s = -math.inf

    def look(self) -> Seen:
        nvml = self._nvml
        return Seen(
            sm_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            power_w=self._watts(nvml.nvmlDeviceGetPowerUsage),
            power_limit_w=self._power_limit_w,
            clock_limits=self._clock_limits(),
            processes=self._processes(),
        )

    def _clock_limits(self) -> frozenset[ClockLimit] | None:
        bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksEventReasons)
        if bits is None:  # a driver before 535 has the older name alone
            bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return None if bits is None else frozenset(limit for bit, limit in CLOCK_LIMITS.items() if bits & bit)

    def _processes(self) -> frozenset[int] | None:
        if time.monotonic() - self._asked_s > PROCESSES_AGE_S:
            running = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses)
            self._pids = None if running is None else frozenset(process.pid for process in running)
            self._asked_s = time.monotonic()
        return self._pids

    def _watts(self, question: Callable) -> float | None:
        milliwatts = self._ask(question)
        return None if milliwatts is None else milliwatts / 1e3

    def _ask(self, question: Callable, *arguments: object) -> Any:
        """NVML's answer; None where this GPU, this driver or this user gets none."""
        try:
            return question(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None


def open_watch(device: torch.device | int) -> Watch:
    """A watch over one of torch's GPUs. Raises NoNvml where there is no package, no library or no permission."""
    try:
        import pynvml
    except ImportError:
        raise NoNvml("The package nvidia-ml-py is not installed; pip install -e '.[gpu]' does it.") from None
    try:
        pynvml.nvmlInit()
        return Watch(pynvml, _handle(pynvml, torch.cuda.get_device_properties(device)))
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML says: {error}.") from error


def _handle(nvml: Any, properties: Any) -> Any:
    """NVML's handle of a GPU: not by its number, since CUDA_VISIBLE_DEVICES gives others. A torch before 2.5 says no
    UUID, and an old one no place on the bus either."""
    if uuid := str(getattr(properties, "uuid", "")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
    if not hasattr(properties, "pci_bus_id"):
        raise NoNvml("This torch does not say which GPU it uses.")
    place = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return nvml.nvmlDeviceGetHandleByPciBusId(place)


def why_unwatched(device: torch.device | int) -> str | None:
    """Why there is no watch over one of torch's GPUs, a sentence; None where there is one."""
    try:
        open_watch(device)
    except NoNvml as error:
        return str(error)
    return None
