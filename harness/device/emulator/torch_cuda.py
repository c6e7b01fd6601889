"""torch.cuda for the emulated device: its own functions ask a CUDA build's C++ side, which is not there."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from harness.device.emulator.runtime import library

NAME = "CUDA emulator on the CPU"
CAPABILITY = (9, 0)
TOTAL_MEMORY = 8 << 30


def _properties() -> SimpleNamespace:
    return SimpleNamespace(
        name=NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=TOTAL_MEMORY,
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


class Stream:
    """The one stream there is: work is done when the call that asks for it returns."""

    cuda_stream = 0
    priority = 0
    device_index = 0

    def __init__(self, *_args: Any, **_kwargs: Any):
        import torch

        self.device = torch.device("cuda", 0)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        """All work is done."""
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_exc: Any) -> None:
        return None


class Event:
    """A moment on the host's clock. Differences are times of this emulation, never of a GPU."""

    def __init__(self, *_args: Any, **_kwargs: Any):
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """It has happened."""

    def wait(self, stream: Any = None) -> None:
        """It has happened."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds of emulation."""
        return (end._at - self._at) * 1e3


class _Nothing:
    """A context that changes nothing: there is one device and one stream."""

    def __init__(self, *_args: Any, **_kwargs: Any):
        pass

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_exc: Any) -> None:
        return None


class _NoGraph:
    def __init__(self, *_args: Any, **_kwargs: Any):
        raise NotImplementedError("The CUDA emulator does not support CUDA graphs.")


def _check_device(device: Any) -> None:
    import torch

    index = torch.device(device).index if isinstance(device, str) else getattr(device, "index", device)
    if index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal {index}; there is one emulated device, cuda:0.")


def _seed(seed: int) -> None:
    import torch

    torch.default_generator.manual_seed(seed)


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
        "mem_get_info": (TOTAL_MEMORY, TOTAL_MEMORY),
        "synchronize": None,
        "is_current_stream_capturing": False,
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
    torch.cuda.set_device = _check_device
    torch.cuda.manual_seed = torch.cuda.manual_seed_all = _seed
    torch.cuda._initialized = True
    torch.cuda.Stream, torch.cuda.Event, torch.cuda.CUDAGraph = Stream, Event, _NoGraph
    torch.cuda.current_stream = torch.cuda.default_stream = lambda device=None: Stream()
    torch.cuda.stream = torch.cuda.device = torch.cuda.device_of = torch.cuda.StreamContext = _Nothing
    torch.version.cuda = "13.0"
