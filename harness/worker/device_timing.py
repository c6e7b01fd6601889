"""Answers how long the device works on a call, with what has to be kept from one question to the next."""

from __future__ import annotations

from functools import partial

import torch

from harness.protocol.wire import DeviceTimed, Reply, TimeDevice
from harness.worker.device_time import TIMERS, DeviceTimer
from harness.worker.memory import Memory
from harness.worker.staged import Staged


class DeviceTiming:
    """The calls that are being timed by the device's own events."""

    def __init__(self, staged: Staged, memory: Memory) -> None:
        self._staged = staged
        self._memory = memory
        self._timer: DeviceTimer | None = None

    def measure(self, request: TimeDevice) -> Reply:
        """One pass over the buffers; without a time where the calls cannot be captured."""
        with torch.set_grad_enabled(self._staged.gradients):
            if self._timer is None:
                self._staged.outputs = []
                self._memory.trim()  # a graph's results lie elsewhere
                try:
                    self._timer = self._make_timer(request)
                except RuntimeError:
                    self._memory.synchronize()  # calls that cannot be captured can be queued
                    return DeviceTimed()
            timed = DeviceTimed(call_us=self._timer.measure(), launches=self._timer.launches)
        if not request.more or timed.call_us is None:
            self._timer = None
            self._memory.trim()
        return timed

    def _make_timer(self, request: TimeDevice) -> DeviceTimer:
        call = self._staged.call
        assert call is not None
        return TIMERS[request.method]([partial(call, self._staged.buffers[buffer]) for buffer in request.buffers])

    def forget(self) -> None:
        """Drop graphs and their results."""
        self._timer = None
