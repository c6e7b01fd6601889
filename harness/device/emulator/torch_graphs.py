"""torch.cuda.CUDAGraph for the emulated device: stream capture, which the runtime records and replays in order."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from harness.build.extension import NOT_EMULATED
from harness.device.emulator.runtime import library

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
_POOL = (0, 1)  # one for all: what a graph writes lives as long as the graph


def check(said: bytes | None) -> None:
    """Raise RuntimeError with what the runtime said, if it said something."""
    if said:
        raise RuntimeError(said.decode("utf-8", "replace"))


class CUDAGraph:
    """The work of a stream between `capture_begin` and `capture_end`, done again by each `replay`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._stream = 0
        self._executable = ctypes.c_void_p()

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Record what comes in the current stream, which must not be the default one."""
        self._stream = library().emu_current_stream() or 0
        check(library().emu_begin_capture(_MODES[capture_error_mode]))

    def capture_end(self) -> None:
        """Raises RuntimeError, in CUDA's words, where the work could not be recorded."""
        check(library().emu_end_capture(self._stream, ctypes.byref(self._executable)))

    def instantiate(self) -> None:
        """`capture_end` has done it."""

    def replay(self) -> None:
        """Do the recorded work in the current stream."""
        if not self._executable:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        check(library().emu_launch_graph(self._executable))

    def reset(self) -> None:
        """Give up the graph and the memory of what was made in its capture."""
        if self._executable:
            library().cudaGraphExecDestroy(self._executable)
        self._executable = ctypes.c_void_p()

    def pool(self) -> tuple[int, int]:
        """For another graph's `capture_begin`."""
        return _POOL

    def debug_dump(self, debug_path: str) -> None:
        """Not emulated."""
        raise NotImplementedError(f"{NOT_EMULATED}torch.cuda.CUDAGraph.debug_dump.")

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.reset()


def install(torch: Any) -> None:
    """Have torch.cuda.graph and its kin use the emulator's graphs."""
    torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = CUDAGraph
    torch.cuda.graph_pool_handle = torch.cuda.graphs.graph_pool_handle = lambda: _POOL
    torch.cuda.is_current_stream_capturing = lambda: bool(library().emu_is_capturing())
    torch.cuda.graphs.is_current_stream_capturing = torch.cuda.is_current_stream_capturing
    torch._C._host_emptyCache = lambda: None
