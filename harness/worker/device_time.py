"""How long a GPU itself works on a call, by CUDA's events inside the worker: a diagnosis, never a score.

It says how much of a call is Python and launch. Three ways, and they do not measure the same: a CUDA graph of all calls
leaves hardly a gap between kernels; launched one by one, as a program does it, kernels follow each other with gaps; of
a graph of each call, launched one by one, there are gaps between calls alone. Each is queued behind a kernel that
waits: what is launched while the events already count is timed with its launch.
Each measurement is one pass over the calls. Between two the judge works on the device as it does between rounds, so
that both are of the same conditions: contexts that change, and caches that hold something else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from harness.device import driver
from harness.protocol.wire import DeviceTimeMethod

# Waiting for the launches: at least so long, and so many times what issuing them took before.
MIN_WAIT_US = 500.0
WAIT_FACTOR = 3.0

# torch.cuda._sleep counts cycles of a clock that few GPUs run faster than.
CYCLES_PER_US = 2000.0

Calls = Sequence[Callable[[], object]]


class DeviceTimer(Protocol):
    """Calls that are ready to be timed, again and again."""

    launches: float | None
    """How many a call has, where that is known."""

    def measure(self) -> float | None:
        """Microseconds of a call; None where the device's time cannot be told from the host's."""


class Graph:
    """One CUDA graph of all calls."""

    def __init__(self, calls: Calls) -> None:
        """Raises RuntimeError when they cannot be captured: they synchronise, or launch on a stream that is not the
        current one."""
        _warm_up(calls)
        counted = hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph")  # since torch 2.8
        self._graph = torch.cuda.CUDAGraph(keep_graph=True) if counted else torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = [call() for call in calls]
        self._count = len(calls)
        self.launches: float | None = None
        if counted:
            with contextlib.suppress(driver.DriverError):  # a time without a count is better than none
                self.launches = driver.graph_nodes(self._graph.raw_cuda_graph()) / len(calls)
            self._graph.instantiate()

    def measure(self) -> float:
        return _run(self._graph.replay, MIN_WAIT_US)[0] / self._count


class Queue:
    """The calls launched one by one, queued behind a kernel that waits; fewer of them where the launches of all do not
    fit into the queue, which is about a thousand long."""

    launches: float | None = None

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._wait_us = max(MIN_WAIT_US, WAIT_FACTOR * _issue_us(calls))

    def measure(self) -> float | None:
        """None when not even one call can be launched before it begins: it waits for the device itself."""
        while self._calls:
            took_us, ahead = _run(lambda: [call() for call in self._calls], self._wait_us)
            if ahead:
                return took_us / len(self._calls)
            self._calls = self._calls[: len(self._calls) // 2]
        return None


class Graphs:
    """A CUDA graph of each call."""

    launches: float | None = None

    def __init__(self, calls: Calls) -> None:
        """Raises RuntimeError when they cannot be captured, as Graph does."""
        _warm_up(calls)
        memory = torch.cuda.graph_pool_handle()
        graphs = [torch.cuda.CUDAGraph() for _ in calls]
        self._results = []
        # Not torch.cuda.graph, which empties torch's cache each time.
        with torch.cuda.stream(torch.cuda.Stream()):
            for graph, call in zip(graphs, calls, strict=True):
                graph.capture_begin(pool=memory)
                try:
                    self._results.append(call())
                finally:
                    graph.capture_end()
        self._queue = Queue([graph.replay for graph in graphs])

    def measure(self) -> float | None:
        return self._queue.measure()


TIMERS: dict[DeviceTimeMethod, Callable[[Calls], DeviceTimer]] = {"graph": Graph, "graphs": Graphs, "queue": Queue}


def _warm_up(calls: Calls) -> None:
    """Run them where libraries may still make handles and workspaces, which a capture does not allow."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for call in calls:
            call()
    torch.cuda.synchronize()


def _issue_us(calls: Calls) -> float:
    """What issuing `calls` takes. They are run before, all results kept, for memory to be there."""
    issue_us = 0.0
    for _ in range(2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        kept = [call() for call in calls]
        issue_us = (time.perf_counter() - started) * 1e6
        del kept
    torch.cuda.synchronize()
    return issue_us


def wait(wait_us: float) -> None:
    """Launch a kernel that does nothing for about so long."""
    torch.cuda._sleep(int(wait_us * CYCLES_PER_US))


def _run(run: Callable[[], object], wait_us: float) -> tuple[float, bool]:
    """Microseconds between events around `run`, and whether it had returned before the device came to the first."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    wait(wait_us)
    start.record()
    kept = run()
    end.record()
    ahead = not start.query()
    end.synchronize()
    del kept
    return start.elapsed_time(end) * 1e3, ahead
