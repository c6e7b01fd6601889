"""How long a GPU itself works on a call, by CUDA's events inside the worker: a diagnosis, never a score.

It says how much of a call is Python and launch. Two ways, and they do not measure the same: a CUDA graph of the calls
leaves hardly a gap between kernels; launched one by one, as a program does it, kernels follow each other with gaps.
Either is queued behind a kernel that waits: what is launched while the events already count is timed with its launch.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from harness.device import driver

REPEATS = 7

# Waiting for the launches: at least so long, and so many times what issuing them took before.
MIN_WAIT_US = 500.0
WAIT_FACTOR = 3.0

# torch.cuda._sleep counts cycles of a clock that few GPUs run faster than.
CYCLES_PER_US = 2000.0

Calls = Sequence[Callable[[], object]]


def in_a_graph(calls: Calls, flush: torch.Tensor) -> tuple[float, float | None]:
    """Microseconds of a call from replays of one graph of all `calls`, and how many launches a call has, where torch
    can say it. Raises RuntimeError when they cannot be captured: they synchronise, or launch on a stream that is not
    the current one."""
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        for call in calls:
            call()
    torch.cuda.synchronize()
    counted = hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph")  # since torch 2.8
    graph = torch.cuda.CUDAGraph(keep_graph=True) if counted else torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph):
        for call in calls:
            kept.append(call())
    launches = None
    if counted:
        with contextlib.suppress(driver.DriverError):  # a time without a count is better than none
            launches = driver.graph_nodes(graph.raw_cuda_graph()) / len(calls)
        graph.instantiate()
    times_us = [_run(graph.replay, flush, MIN_WAIT_US)[0] for _ in range(REPEATS)]
    return statistics.median(times_us) / len(calls), launches


def in_a_queue(calls: Calls, flush: torch.Tensor) -> float | None:
    """Microseconds of a call, from launches queued behind a waiting kernel; of fewer of the calls where the launches
    of all do not fit into the queue, which is about a thousand long. None when not even one call can be launched
    before it begins: it waits for the device itself."""
    wait_us = max(MIN_WAIT_US, WAIT_FACTOR * _issue_us(calls))
    while calls:
        if (times_us := _queued_us(calls, flush, wait_us)) is not None:
            return statistics.median(times_us) / len(calls)
        calls = calls[: len(calls) // 2]
    return None


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


def _queued_us(calls: Calls, flush: torch.Tensor, wait_us: float) -> list[float] | None:
    """Microseconds of all `calls`, some times over, or None once they were not all launched before the first began."""
    times_us = []
    for _ in range(REPEATS):
        took_us, ahead = _run(lambda: [call() for call in calls], flush, wait_us)
        if not ahead:
            return None
        times_us.append(took_us)
    return times_us


def _run(run: Callable[[], object], flush: torch.Tensor, wait_us: float) -> tuple[float, bool]:
    """Microseconds between events around `run`, and whether it had returned before the device came to the first."""
    flush.zero_()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(wait_us * CYCLES_PER_US))
    start.record()
    kept = run()
    end.record()
    ahead = not start.query()
    end.synchronize()
    del kept
    return start.elapsed_time(end) * 1e3, ahead
