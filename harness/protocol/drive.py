"""What the profiler asks of `harness.worker.drive`, and what comes back: files, not messages to a worker."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from harness.records import KernelResources


class DriveCase(Struct, frozen=True):
    """One case of a Drive. `tensors` is a file of torch.save: a dict with the reference's `state` and `inputs`."""

    name: str
    init: Any
    dtype: str
    tensors: str
    backward: bool = False
    """Whether a call is a forward and a backward."""


class Drive(Struct, frozen=True):
    """What harness.worker.drive runs, and the file `result` that it writes a Driven to."""

    submission: str
    build_cache: str
    device: str
    result: str
    cases: list[DriveCase]
    warm_ups: int = 0
    traced: bool = False
    """Whether torch.profiler traces the last call of each case."""


class WireKernelTime(Struct, frozen=True):
    """All launches of one kernel together, as torch.profiler saw them."""

    kernel: str
    launches: int
    total_us: float


class Driven(Struct, frozen=True):
    """The result of a Drive: the compiler's report, and the times if it was traced."""

    kernels: list[KernelResources]
    times: list[WireKernelTime]
