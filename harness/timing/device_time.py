"""The GPU's own time for a call, which a worker tells by events: shown beside the clock's, never instead of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness import verdict
from harness.judging.runner import Runner
from harness.protocol.wire import DeviceTimeMethod
from harness.timing.input_pool import InputPool

# A worker takes fewer where their launches do not all fit into the device's queue.
MAX_CALLS = 64

PASSES = 7


def of_a_call(
    runner: Runner, buffers: Sequence[int], pool: InputPool, *, in_a_graph: bool
) -> verdict.DeviceTime | None:
    """From calls on some of `buffers`; None where they cannot be timed so. Raises SubmissionError.

    A pass begins as a round does: the judge changes data on the device, and leaves nothing in its cache."""
    buffers = buffers[:MAX_CALLS]
    graph_us, launches = _median_us(runner, buffers, pool, "graph") if in_a_graph else (None, None)
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
    """The median over passes, and the launches of a call. The first pass runs what is timed before it, and does not
    count."""
    passes_us: list[float] = []
    for left in reversed(range(PASSES + 1)):
        pool.change(pool.prepare(buffers))
        timed = runner.time_device(buffers, method, more=left > 0)
        if timed.call_us is None:
            return None, None
        passes_us.append(timed.call_us)
    return float(np.median(passes_us[1:])), timed.launches
