"""torch.cuda for the emulated device: its own functions ask a CUDA build's C++ side, which is not there."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

from harness.device.emulator import torch_graphs
from harness.device.emulator.runtime import library

NAME = "CUDA emulator on the CPU"
CAPABILITY = (9, 0)
_CUDA_TYPE = 1  # c10::DeviceType::CUDA


def _properties() -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=library().emu_memory_total_bytes(),
        multi_processor_count=132,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        L2_cache_size=50 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid="emulator",
    )


def _stream_classes(torch: Any) -> tuple[type, type]:
    """torch.cuda's Stream and Event. torch.Stream does what they are asked for, through the emulated device; of CUDA's
    own they lack the handle, and other forms of the same arguments."""
    device = torch.device("cuda", 0)

    class Stream(torch.Stream):  # type: ignore[misc]
        """A stream of the emulated device: a new one, or the one with the handle `stream_ptr`."""

        def __new__(cls, device: Any = None, priority: int = 0, *, stream_ptr: int | None = None, **given: Any) -> Any:
            handle = given.get("stream_id", stream_ptr)
            if handle is None:
                handle = library().emu_pool_stream()
            return super().__new__(cls, stream_id=handle or 0, device_index=0, device_type=_CUDA_TYPE)

        @property
        def cuda_stream(self) -> int:
            """The handle, as extensions take it."""
            return int(self.stream_id)

        @property
        def _as_parameter_(self) -> ctypes.c_void_p:
            return ctypes.c_void_p(self.cuda_stream)

        priority = 0

        @staticmethod
        def priority_range() -> tuple[int, int]:
            """The least and the greatest: there is one."""
            return 0, 0

        def record_event(self, event: Any = None) -> Any:
            """An event behind all that the stream has to do."""
            event = Event() if event is None else event
            event.record(self)
            return event

    class Event(torch.Event):  # type: ignore[misc]
        """Differences are times of this emulation, never of a GPU."""

        def __new__(cls, enable_timing: bool = False, blocking: bool = False, *_args: Any, **_kwargs: Any) -> Any:
            return super().__new__(cls, device=device, enable_timing=True)

        @property
        def cuda_event(self) -> int:
            """The handle, as extensions take it; 0 before the first record."""
            return int(self.event_id)

        def record(self, stream: Any = None) -> None:
            """Behind all that `stream`, or the current one, has to do."""
            super().record(stream or torch.cuda.current_stream())

        def wait(self, stream: Any = None) -> None:
            """Have `stream`, or the current one, wait for it."""
            super().wait(stream or torch.cuda.current_stream())

        def elapsed_time(self, end: Any) -> float:
            """Milliseconds of emulation."""
            ms = ctypes.c_float()
            handles = (ctypes.c_void_p(event.event_id) for event in (self, end))
            if library().cudaEventElapsedTime(ctypes.byref(ms), *handles):
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            return ms.value

    return Stream, Event


class _StreamContext:
    """Makes a stream the current one; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._before = 0

    def __enter__(self) -> None:
        self._before = library().emu_current_stream() or 0
        _set_stream(self._stream)

    def __exit__(self, *_exc: Any) -> None:
        library().emu_set_current_stream(self._before)


class _Nothing:
    """A context that changes nothing: there is one device."""

    def __init__(self, *_args: Any, **_kwargs: Any):
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_exc: Any) -> None:
        return None


class _NoMarks:
    """NVTX without a profiler: nobody reads the marks."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_a, **_k: 0


def _check_device(device: Any) -> None:
    import torch

    index = torch.device(device).index if isinstance(device, str) else getattr(device, "index", device)
    if index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal {index}; there is one emulated device, cuda:0.")


def _seed(seed: int) -> None:
    import torch

    torch.default_generator.manual_seed(seed)


def _set_stream(stream: Any) -> None:
    if stream is not None:
        library().emu_set_current_stream(stream.stream_id)


def _install_streams(torch: Any) -> None:
    runtime = library()
    stream, event = _stream_classes(torch)
    torch.cuda.Stream, torch.cuda.Event = stream, event
    torch.cuda.ExternalStream = lambda stream_ptr, device=None, **_k: stream(stream_ptr=stream_ptr)
    torch.cuda.current_stream = lambda device=None: stream(stream_ptr=runtime.emu_current_stream() or 0)
    torch.cuda.default_stream = lambda device=None: stream(stream_ptr=0)
    torch.cuda.set_stream = _set_stream
    torch.cuda.stream = torch.cuda.StreamContext = _StreamContext
    torch.cuda.synchronize = lambda device=None: torch_graphs.check(runtime.emu_wait())


def install(torch: Any) -> None:
    """Replace the functions of `torch.cuda` that would ask for CUDA."""
    properties = _properties()
    answers: dict[str, Any] = {
        "_lazy_init": None,
        "init": None,
        "is_available": True,
        "is_initialized": True,
        "_is_compiled": True,
        "device_count": 1,
        "current_device": 0,
        "empty_cache": None,
        "ipc_collect": None,
        "get_device_name": NAME,
        "get_device_capability": CAPABILITY,
        "get_device_properties": properties,
        "is_bf16_supported": True,
        "get_arch_list": ["sm_90"],
        "memory_stats": {},
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_a, answer=answer, **_k: answer)
    live, peak = library().emu_memory_live_bytes, library().emu_memory_peak_bytes
    for name in ("memory_allocated", "memory_reserved"):
        setattr(torch.cuda, name, lambda device=None: live())
        setattr(torch.cuda, "max_" + name, lambda device=None: peak())
    for name in ("reset_peak_memory_stats", "reset_max_memory_allocated"):
        setattr(torch.cuda, name, lambda device=None: library().emu_memory_reset_peak())
    runtime = library()
    total = runtime.emu_memory_total_bytes()
    torch.cuda.mem_get_info = lambda device=None: (total - live(), total)
    torch.cuda.set_device = _check_device
    torch.cuda.manual_seed = torch.cuda.manual_seed_all = _seed
    torch.cuda.default_generators = (torch.default_generator,)
    torch.cuda._initialized = True
    _install_streams(torch)
    # Where torch.cuda says that it is compiled, torch._dynamo and torch.utils.checkpoint ask these.
    torch._C._cuda_getCurrentRawStream = lambda device=0: runtime.emu_current_stream() or 0
    torch._C._cuda_getDevice = lambda: 0
    torch.cuda.nvtx._nvtx = _NoMarks()
    torch_graphs.install(torch)
    torch.cuda.device = torch.cuda.device_of = _Nothing
    torch.version.cuda = "13.0"
