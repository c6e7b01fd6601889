"""The runtime library seen from Python: options, findings and counts."""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.device.emulator import libraries, line_names
from harness.records import Finding, KernelCounts

_ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_library: ctypes.CDLL | None = None
_others: list[ctypes.CDLL] = []
_helpers: list[subprocess.Popen[bytes]] = []


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
    for name in ("emu_memory_total_bytes", "emu_memory_live_bytes", "emu_memory_peak_bytes"):
        getattr(_library, name).restype = ctypes.c_uint64
    for name in ("emu_current_stream", "emu_pool_stream"):
        getattr(_library, name).restype = ctypes.c_void_p
    for name in ("emu_set_current_stream", "emu_wait_for_device"):
        getattr(_library, name).restype = None
    _library.emu_set_current_stream.argtypes = [ctypes.c_void_p]
    _library.emu_name.restype = _library.emu_name_size.restype = _library.emu_forget_sizes.restype = None
    _library.emu_name.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    _library.emu_name_size.argtypes = [ctypes.c_size_t, ctypes.c_char_p]
    for name in ("emu_access", "emu_wait", "emu_begin_capture", "emu_end_capture", "emu_launch_graph"):
        getattr(_library, name).restype = ctypes.c_char_p
    for name in ("emu_end_capture", "emu_launch_graph", "cudaGraphExecDestroy"):
        getattr(_library, name).argtypes = [ctypes.c_void_p] * (2 if name == "emu_end_capture" else 1)
    _library.emu_access.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
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


def testify(descriptor: int) -> None:
    """From here on each finding is written to `descriptor`, a line of JSON, before the submission's code goes on."""
    library().emu_testify(descriptor)


def name_lines() -> None:
    """From here on findings name source lines, with the help of another process."""
    process = line_names.start()
    assert process.stdin and process.stdout
    library().emu_name_lines_by(os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno()))
    _helpers.append(process)


def caller_writes(tensors: Iterable[Any]) -> None:
    """The caller's stream has just written these tensors. With detectors it is a finding when something in another
    stream may still touch them, and later when something there touches them without waiting for this."""
    _access(tensors, write=True)


def caller_reads(results: Iterable[Any]) -> None:
    """The caller's stream reads what a call returned; a finding when something in another stream may still write it."""
    _access(results, write=False)


def _access(values: Iterable[Any], *, write: bool) -> None:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda and value.layout is torch.strided and value.numel():
            span = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
            nbytes = span * value.element_size() if span <= value.numel() else 0  # gaps may be another stream's
            library().emu_access(b"the caller", value.data_ptr(), nbytes, int(write))


def name(tensors: Mapping[str, Any]) -> None:
    """What findings call the memory of these tensors from here on, each by its name and form."""
    for called, tensor in tensors.items():
        if tensor.is_cuda and tensor.numel():
            library().emu_name(tensor.data_ptr(), _with_form(called, tensor.shape, tensor.dtype))


def name_by_size(forms: Mapping[str, tuple[Sequence[int], Any]]) -> None:
    """What findings call memory without a name that is as large as a tensor of one of these forms, a shape and a dtype:
    the first of its size. What was said before is forgotten."""
    library().emu_forget_sizes()
    for called, (shape, dtype) in forms.items():
        nbytes = math.prod(shape) * dtype.itemsize
        library().emu_name_size(nbytes, _with_form(f"an allocation as large as {called}", shape, dtype))


def _with_form(called: str, shape: Sequence[int], dtype: Any) -> bytes:
    form = "×".join(map(str, shape)) or "a scalar"
    return f"{called} ({form}, {str(dtype).removeprefix('torch.')})".encode()


def _decoded(answer: bytes) -> Any:
    return json.loads(answer.decode("utf-8", "replace"))


def take_findings() -> list[Finding]:
    """The defects seen since the last call."""
    runtime = library()
    runtime.emu_settle()
    findings = []
    for entry in _decoded(runtime.emu_take_findings()):
        for name in ("block", "thread"):
            entry[name] = tuple(entry[name]) if entry[name] else None
        findings.append(Finding(**entry))
    return findings


def take_counts() -> list[KernelCounts]:
    """What each kernel did since the last call; empty unless the extension was built with check."""
    return [KernelCounts(**entry) for entry in _decoded(library().emu_take_counts())]
