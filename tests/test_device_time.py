"""The device's own time of calls, on a stand-in for a GPU's stream and its clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from harness.protocol.wire import DeviceTimed
from harness.timing.device_time import PASSES, of_a_call
from harness.worker import device_time
from harness.worker.implementations import NullKernel

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
    assert device_time.Queue(calls).measure() == pytest.approx(kernels * (kernel_us + GAP_US))


def test_a_call_that_waits_for_the_device_has_no_such_time(stream):
    calls = calls_of(stream, 64, 1, 5.0, before=stream.synchronize)
    assert device_time.Queue(calls).measure() is None


def test_the_stub_is_busy_for_as_long_as_it_is_asked_to_be(stream):
    null = NullKernel([], torch.device("cuda"))

    def play(calls, lasts_us=0.0):
        null.begin_round()
        for _ in range(calls):
            null(torch.ones(1))
            stream.launch(20.0)
        null.end_round(lasts_us)
        stream.synchronize()
        return null.device_us()

    alone_us = play(4)
    assert play(4, lasts_us=1000.0) == pytest.approx(1000.0, abs=2 * GAP_US)
    assert play(4, lasts_us=3000.0) == pytest.approx(3000.0, abs=2 * GAP_US)
    assert play(4, lasts_us=alone_us / 2) == pytest.approx(alone_us)
    # How long another number of calls takes is not known before the first such round.
    assert play(8, lasts_us=1000.0) < 1000.0 <= play(8, lasts_us=1000.0) + 2 * GAP_US


class Worker:
    """Answers with the next of `passes_us` for a method, and keeps what it and the pool were asked."""

    def __init__(self, **passes_us):
        self.passes_us = passes_us
        self.asked = []

    def time_device(self, buffers, method, *, more):
        self.asked.append((method, more))
        return DeviceTimed(self.passes_us[method].pop(0), launches=2.0 if method == "graph" else None)

    def prepare(self, buffers):
        return "changes"

    def change(self, changes):
        self.asked.append(changes)


def test_each_pass_begins_as_a_round_does_and_the_first_does_not_count():
    passes_us = {"graph": [90.0, *[10.0] * (PASSES - 1), 40.0], "graphs": [90.0, *[11.0] * PASSES]}
    worker = Worker(**passes_us, queue=[90.0, *[12.0] * PASSES])
    timed = of_a_call(worker, range(200), worker)
    assert (timed.method, timed.call_us, timed.launches) == ("graph", 10.0, 2.0)
    assert (timed.graphs_us, timed.queued_us) == (11.0, 12.0)
    passes = [(method, left > 0) for method in ("graph", "graphs", "queue") for left in reversed(range(PASSES + 1))]
    assert worker.asked == [word for asked in passes for word in ("changes", asked)]


def test_calls_that_cannot_be_captured_are_queued_and_those_that_wait_have_no_time():
    timed = of_a_call(Worker(graph=[None], queue=[90.0, *[12.0] * PASSES]), range(2), Worker())
    assert (timed.method, timed.call_us, timed.launches) == ("queue", 12.0, None)
    assert of_a_call(Worker(graph=[None], queue=[None]), range(2), Worker()) is None
