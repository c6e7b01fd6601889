"""How long a GPU itself works on a call, by CUDA's events inside the worker: a diagnosis, never a score.

It says how much of a call is Python and launch. Where the calls can be captured, a CUDA graph runs them without
gaps; elsewhere they are queued behind a kernel that waits, so that all are launched before the first begins.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch

REPEATS = 7

# Waiting for the launches: at least so long, and so many times what issuing them took before.
MIN_WAIT_US = 500.0
WAIT_FACTOR = 3.0

# torch.cuda._sleep counts cycles of a clock that no GPU runs faster than.
CYCLES_PER_US = 2000.0

Calls = Sequence[Callable[[], object]]


def in_a_graph(calls: Calls, flush: torch.Tensor) -> float:
    """Microseconds of a call, from replays of one graph of all `calls`. Raises RuntimeError when they cannot be
    captured: they synchronise, or launch on a stream that is not the current one."""
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph):
        for call in calls:
            kept.append(call())
    return _median_us(graph.replay, flush, wait_us=0.0) / len(calls)


def in_a_queue(calls: Calls, flush: torch.Tensor, issue_us: float) -> float:
    """Microseconds of a call, from launches queued behind a waiting kernel. `issue_us` is what issuing all of
    `calls` takes."""

    def run() -> None:
        kept = [call() for call in calls]
        del kept

    return _median_us(run, flush, wait_us=max(MIN_WAIT_US, WAIT_FACTOR * issue_us)) / len(calls)


def _median_us(run: Callable[[], object], flush: torch.Tensor, wait_us: float) -> float:
    times_us = []
    for _ in range(REPEATS):
        flush.zero_()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if wait_us:
            torch.cuda._sleep(int(wait_us * CYCLES_PER_US))
        start.record()
        run()
        end.record()
        end.synchronize()
        times_us.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times_us)
