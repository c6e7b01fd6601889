"""The device's own time of calls that are launched one by one, on a stand-in for a GPU's stream and its clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from harness.worker import device_time

QUEUE_LENGTH = 1000
LAUNCH_US = 4.0
GAP_US = 1.0


class Stream:
    """Host and device on one clock, in microseconds; launching waits while the queue is full."""

    def __init__(self) -> None:
        self.host_us = 0.0
        self._ends_us: list[float] = []

    def launch(self, kernel_us: float, gap_us: float = GAP_US) -> float:
        """When the device is done with it."""
        self.host_us += LAUNCH_US
        if len(self._ends_us) >= QUEUE_LENGTH:
            self.host_us = max(self.host_us, self._ends_us[-QUEUE_LENGTH])
        free_us = self._ends_us[-1] if self._ends_us else 0.0
        self._ends_us.append(max(self.host_us, free_us) + gap_us + kernel_us)
        return self._ends_us[-1]

    def synchronize(self) -> None:
        self.host_us = max([self.host_us, *self._ends_us[-1:]])


@pytest.fixture
def stream(monkeypatch):
    stream = Stream()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.us = stream.launch(0.0, gap_us=0.0)

        def query(self) -> bool:
            return self.us <= stream.host_us

        def synchronize(self) -> None:
            stream.host_us = max(stream.host_us, self.us)

        def elapsed_time(self, end: Event) -> float:
            return (end.us - self.us) / 1e3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", stream.synchronize)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: stream.launch(cycles / device_time.CYCLES_PER_US))
    monkeypatch.setattr(device_time, "time", SimpleNamespace(perf_counter=lambda: stream.host_us / 1e6))
    return stream


def calls_of(stream, count, kernels, kernel_us, before=lambda: None):
    def call():
        before()
        for _ in range(kernels):
            stream.launch(kernel_us)

    return [call] * count


@pytest.mark.parametrize(
    ("kernels", "kernel_us"),
    [
        pytest.param(1, 0.5, id="shorter than its launch"),
        pytest.param(7, 90.0, id="several kernels"),
        pytest.param(40, 0.5, id="more launches than the queue holds"),
        pytest.param(40, 90.0, id="more launches than the queue holds, all long"),
    ],
)
def test_calls_launched_one_by_one_take_their_kernels_and_gaps_and_no_launching(stream, kernels, kernel_us):
    calls = calls_of(stream, 64, kernels, kernel_us)
    assert device_time.in_a_queue(calls, torch.ones(8)) == pytest.approx(kernels * (kernel_us + GAP_US))


def test_a_call_that_waits_for_the_device_has_no_such_time(stream):
    calls = calls_of(stream, 64, 1, 5.0, before=stream.synchronize)
    assert device_time.in_a_queue(calls, torch.ones(8)) is None
