"""The runtime library seen from Python: options, findings and counts."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from harness.device.emulator import libraries
from harness.device.findings import Finding, KernelCounts

_ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_library: ctypes.CDLL | None = None
_others: list[ctypes.CDLL] = []


def load(folder: Path) -> None:
    """Load both libraries for the whole process: extensions find their symbols there."""
    global _library
    _library = ctypes.CDLL(str(folder / libraries.RUNTIME), mode=ctypes.RTLD_GLOBAL)
    _library.emu_configure.argtypes = [
        ctypes.c_int,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_double,
    ]
    for name in ("emu_take_findings", "emu_take_counts"):
        getattr(_library, name).restype = ctypes.c_char_p
    for name in ("emu_memory_live_bytes", "emu_memory_peak_bytes"):
        getattr(_library, name).restype = ctypes.c_uint64
    _others.append(ctypes.CDLL(str(folder / libraries.DEVICE), mode=ctypes.RTLD_GLOBAL))


def load_for_python(folder: Path) -> None:
    """Load what gives extensions' functions to Python, once torch is there. An extension from the cache would look for
    it in the folder that it was built against, which may have gone since."""
    _others.append(ctypes.CDLL(str(folder / libraries.PYTHON), mode=ctypes.RTLD_GLOBAL))


def library() -> ctypes.CDLL:
    """The loaded runtime."""
    if _library is None:
        raise RuntimeError("The emulator is not active in this process: call activate() before torch is imported.")
    return _library


def configure(
    *,
    order: str = "forward",
    seed: int = 1,
    workers: int | None = None,
    check: bool = False,
    timeout_s: float = 20.0,
) -> None:
    """Set how the next kernels run: order of threads and blocks, seed, detectors and time limit."""
    if order not in _ORDERS:
        raise ValueError(f"order is {order!r}; it must be one of {', '.join(_ORDERS)}.")
    count = workers if workers is not None else os.cpu_count() or 1
    library().emu_configure(_ORDERS[order], seed, count, int(check), timeout_s)


def _decoded(answer: bytes) -> Any:
    return json.loads(answer.decode("utf-8", "replace"))


def take_findings() -> list[Finding]:
    """The defects seen since the last call."""
    runtime = library()
    runtime.emu_settle()
    findings = []
    for entry in _decoded(runtime.emu_take_findings()):
        entry["block"], entry["thread"] = tuple(entry["block"]), tuple(entry["thread"])
        findings.append(Finding(**entry))
    return findings


def take_counts() -> list[KernelCounts]:
    """What each kernel did since the last call; empty unless the extension was built with check."""
    return [KernelCounts(**entry) for entry in _decoded(library().emu_take_counts())]
