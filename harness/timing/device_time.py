"""The GPU's own time of a call, by events in the worker. Reports show it beside the clock's time, never instead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness import verdict
from harness.judging.runner import Runner
from harness.protocol.wire import DeviceTimeMethod
from harness.timing.data.input_pool import InputPool

# A worker takes fewer if their launches do not all fit into the device's queue.
MAX_CALLS = 64

PASSES = 7


def of_a_call(runner: Runner, buffers: Sequence[int], pool: InputPool) -> verdict.DeviceTime | None:
    """Times calls on up to MAX_CALLS of `buffers`, and CUDA graphs of them. None if the calls cannot be timed by
    events. Raises SubmissionError.

    A pass begins as a round does: the judge flushes the device's cache and changes the inputs."""
    buffers = buffers[:MAX_CALLS]
    graph_us, launches = _median_us(runner, buffers, pool, "graph")
    graphs_us, _ = _median_us(runner, buffers, pool, "graphs") if graph_us is not None else (None, None)
    queued_us, _ = _median_us(runner, buffers, pool, "queue")
    method, call_us = ("graph", graph_us) if graph_us is not None else ("queue", queued_us)
    if call_us is None:
        return None
    return verdict.DeviceTime(
        call_us=call_us, method=method, queued_us=queued_us, graphs_us=graphs_us, launches=launches
    )


def _median_us(
    runner: Runner, buffers: Sequence[int], pool: InputPool, method: DeviceTimeMethod
) -> tuple[float | None, float | None]:
    """The median of a call over PASSES passes, and the launches of a call; None where `method` cannot time it. One more
    pass comes first: in it the worker runs the calls once before they are timed, so it does not count."""
    passes_us: list[float] = []
    for left in reversed(range(PASSES + 1)):
        pool.change(pool.prepare(buffers))
        timed = runner.time_device(buffers, method, more=left > 0)
        if timed.call_us is None:
            return None, None
        passes_us.append(timed.call_us)
    return float(np.median(passes_us[1:])), timed.launches
