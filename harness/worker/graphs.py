"""CUDA graphs of what is staged, one for each buffer, and a captured round: one graph of a round's calls.

Each call is captured by itself, so that what it launches on streams of its own has to come together again by its end,
and the graphs become nodes of one, in a row: no call begins before the one before it has ended.

All graphs share one memory pool, which keeps a round as small as one of calls. So the row has them in the order in
which they were captured: what a call needs only meanwhile may lie where a call captured later has its results.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.device import driver
from harness.errors import KernelgateError
from harness.protocol.wire import Capture, Captured, Reply
from harness.worker.memory import Memory
from harness.worker.staged import Staged

# The longest reason that the judge is told.
MAX_TEXT = 300

# torch gives its graphs away since 2.8, CUDA's own name for them.
_CUDAGraph = torch.cuda.CUDAGraph
_GIVES_GRAPHS = hasattr(_CUDAGraph, "raw_cuda_graph")


class CannotCapture(KernelgateError, RuntimeError):
    """The calls of what is staged cannot be CUDA graphs; the text says why."""


@dataclass(frozen=True)
class CapturedCall:
    """The captured call on one buffer, and the tensors that each launch writes."""

    order: int
    """Greater than that of every call that was captured before."""
    captured: torch.cuda.CUDAGraph
    results: list[torch.Tensor]


class Row:
    """One graph of calls, one after the other in the order in which they were captured; `results` are in the order of
    `calls`."""

    def __init__(self, calls: Sequence[CapturedCall]) -> None:
        self.results = [call.results for call in calls]
        self._stream = torch.cuda.current_stream().cuda_stream
        in_order = sorted(calls, key=lambda call: call.order)
        self._executable = driver.chain_graphs([call.captured.raw_cuda_graph() for call in in_order])
        driver.upload_graph(self._executable, self._stream)

    def launch(self) -> None:
        driver.launch_graph(self._executable, self._stream)

    def end(self) -> None:
        driver.destroy_graph(self._executable)


class CapturedCalls:
    """The graphs of the staged call."""

    def __init__(self, staged: Staged, memory: Memory) -> None:
        self._staged = staged
        self._memory = memory
        self._by_buffer: dict[int, CapturedCall] = {}
        self._order = itertools.count()
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._row: Row | None = None

    def capture(self, request: Capture) -> Reply:
        """Have graphs of the calls on `request.buffers`, and of no others, anew where the parameters moved. Calls that
        cannot be captured, since they wait for the device or leave work on a stream of their own, answer with the
        reason. Raises TypeError for an output that is no dense tensor."""
        outdated = self._outdate() if self._staged.move_parameters() else []
        missing = [number for number in request.buffers if number not in self._by_buffer]
        try:
            if missing:
                with torch.set_grad_enabled(self._staged.gradients):
                    self._capture(missing)
        except RuntimeError as error:
            self.forget()
            _restore_generator()
            self._memory.synchronize()
            return Captured(why=_first_line(error))
        # New ones first: torch ends a pool without graphs.
        self._by_buffer = {number: self._by_buffer[number] for number in request.buffers}
        del outdated
        handles: dict[str, int] = {}
        outputs = [self._memory.export(self._by_buffer[number].results, handles) for number in missing]
        return Captured(outputs=outputs, handles=list(handles))

    def _outdate(self) -> list[torch.cuda.CUDAGraph]:
        """Drop what was captured, but for the graphs: new calls have their results where the old ones had them."""
        self._end_row()
        self._staged.outputs = []
        graphs = [call.captured for call in self._by_buffer.values()]
        self._by_buffer = {}
        return graphs

    def _capture(self, numbers: Sequence[int]) -> None:
        """Not by torch.cuda.graph, which empties torch's cache each time. All graphs share what calls need meanwhile,
        since none runs beside another."""
        if not _GIVES_GRAPHS:
            raise CannotCapture(f"PyTorch {torch.__version__} does not give its graphs away; 2.8 and later do.")
        call, buffers = self._staged.call, self._staged.buffers
        assert call is not None
        if self._stream is None:
            self._staged.outputs = []
            self._memory.trim()  # results of graphs lie elsewhere
            self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            with torch.cuda.stream(self._stream):
                call(buffers[numbers[0]])  # libraries make handles and workspaces now, which a capture does not allow
        self._memory.synchronize()
        with torch.cuda.stream(self._stream):
            for number in numbers:
                captured = _CUDAGraph(keep_graph=True)
                with _capturing(captured, self._pool):
                    results = call(buffers[number])
                self._by_buffer[number] = CapturedCall(next(self._order), captured, results)
        self._memory.synchronize()

    def warm_up(self, buffers: Sequence[int]) -> None:
        """Launch the graphs of calls that a round leaves out, by torch: it moves torch's random numbers on, which all
        graphs of a round then share."""
        for number in buffers:
            self._by_buffer[number].captured.replay()

    def put_in_a_row(self, buffers: Sequence[int]) -> Row:
        """One graph of the calls on these, ready to be launched, in place of the last."""
        self._end_row()
        self._row = Row([self._by_buffer[number] for number in buffers])
        return self._row

    def _end_row(self) -> None:
        if self._row is not None:
            self._row.end()
        self._row = None

    def forget(self) -> None:
        """Drop the graphs and their results."""
        self._end_row()
        self._by_buffer = {}
        self._stream = self._pool = None


@contextlib.contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """What is launched in here becomes `graph`. Raises the error that ended the capture, not those that follow it."""
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        yield
    except BaseException:
        with contextlib.suppress(RuntimeError):
            graph.capture_end()
        raise
    graph.capture_end()


def _restore_generator() -> None:
    """A capture that failed leaves torch's generator as if it went on, which refuses every number after it."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


def _first_line(error: RuntimeError) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:MAX_TEXT]
