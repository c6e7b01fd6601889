"""Timed rounds: calls on the buffers that the judge hands out, and afterwards what they returned."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from harness.protocol.handshake import Handshake
from harness.protocol.wire import Name, Named, Play, Played, Reply
from harness.worker.graphs import CapturedCalls
from harness.worker.memory import Memory
from harness.worker.staged import Staged


class Rounds:
    """The worker's side of the judge's clock."""

    def __init__(
        self,
        staged: Staged,
        graphs: CapturedCalls,
        memory: Memory,
        handshake: Handshake,
        take_forbidden: Callable[[], list[str]],
    ) -> None:
        """`take_forbidden` gives the forbidden operators that were called since the last time."""
        self._staged = staged
        self._graphs = graphs
        self._memory = memory
        self._handshake = handshake
        self._take_forbidden = take_forbidden

    def play(self, request: Play) -> Reply:
        """A timed round, its warm-up before it. The parameters move before it, where neither graphs nor a forward hold
        their addresses: those moved them when they were made."""
        self._staged.outputs = []
        if request.captured:
            return self._play_captured(request)
        if not self._staged.has_prepared:
            self._staged.move_parameters()
        with torch.set_grad_enabled(self._staged.gradients):
            return self._play(request)

    def _play(self, request: Play) -> Reply:
        """Nothing stands in the loop of a round but the call and the handshake."""
        call, buffers, null = self._staged.call, self._staged.buffers, self._staged.null_kernel
        assert call is not None
        for buffer in request.warm_up:
            call(buffers[buffer])
        self._memory.synchronize()
        self._memory.wake()
        if null:
            null.begin_round()
        self._handshake.report_ready(request.handshake)
        results: list[list[torch.Tensor]] = []
        first_done = 0.0
        for buffer in self._handshake.take(request.handshake):
            results.append(call(buffers[buffer]))
            first_done = first_done or time.perf_counter()
        issue_us = (time.perf_counter() - first_done) * 1e6
        if null:
            null.end_round(request.lasts_us)
        return self._played(results, issue_us)

    def _play_captured(self, request: Play) -> Reply:
        """One launch, when the judge hands out the first buffer, does what all calls of the round would."""
        self._graphs.warm_up(request.warm_up)
        row = self._graphs.put_in_a_row(request.captured)
        self._memory.synchronize()
        self._memory.wake()
        self._handshake.report_ready(request.handshake)
        for _ in self._handshake.take(request.handshake):
            row.launch()
        return self._played(row.results, issue_us=0.0)

    def _played(self, results: list[list[torch.Tensor]], issue_us: float) -> Reply:
        self._staged.outputs = results
        return Played(addresses=[[t.data_ptr() for t in result] for result in results], issue_us=issue_us)

    def name(self, _request: Name) -> Reply:
        """What the last round's calls returned. Raises TypeError for an output that is no dense tensor."""
        handles: dict[str, int] = {}
        outputs = [self._memory.export(result, handles) for result in self._staged.outputs]
        null = self._staged.null_kernel
        return Named(
            outputs=outputs,
            handles=list(handles),
            forbidden=self._take_forbidden(),
            device_us=null.device_us() if null else 0.0,
        )
