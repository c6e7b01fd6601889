"""Data of a part, drawn and laid out in buffers, and workers that are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness import oracle
from harness.device.base import Device
from harness.judging.runner import Runner
from harness.problem import Problem
from harness.protocol import places
from harness.protocol.wire import TensorRef
from harness.settings import Settings
from harness.timing import roofline
from harness.timing.data.case_data import CaseData
from harness.timing.data.data_set import DATA_SETS, DataSet
from harness.timing.measuring import make_data
from harness.timing.part import Part
from harness.timing.patience import Patience
from harness.timing.rounds.calls import buffer_count
from harness.timing.rounds.contender import Contender


@dataclass(frozen=True)
class StagedPart:
    """A part with its buffers in the arena, and the data that go into them."""

    part: Part
    buffers: list[list[TensorRef]]
    data: CaseData

    def contender(self, name: str, runner: Runner) -> Contender:
        """Tell a worker of the buffers. Raises SubmissionError."""
        reference = self.part.reference
        runner.stage(
            self.buffers,
            self.part.results,
            self.part.name,
            reference.differentiation,
            reference.timed_in_training,
            constants=reference.case.constants,
        )
        return Contender(name, runner.worker, runner.reader, trusted=runner.trusted)


class Staging:
    """Stages parts on one device, whose copy bandwidth is `bandwidth` bytes a second."""

    def __init__(
        self, device: Device, problem: Problem, settings: Settings, patience: Patience, bandwidth: float
    ) -> None:
        self._device = device
        self._problem = problem
        self._settings = settings
        self._patience = patience
        self._bandwidth = bandwidth

    def stage(self, part: Part, workers: int) -> StagedPart:
        """Draw the data sets and lay out buffers for rounds, while each of `workers` holds its last round's results."""
        sets = [self._data_set(part, number) for number in range(DATA_SETS)]
        buffers = self._lay_out(part, sets, self._buffer_count(part, workers))
        return StagedPart(part, buffers, make_data(self._device, part, sets, buffers))

    def _buffer_count(self, part: Part, workers: int) -> int:
        floor_us = roofline.floor_us(part.bytes_min, self._bandwidth)
        places_bytes = 0 if self._device.is_cpu else places.count(part.state_bytes) * part.state_bytes
        return buffer_count(
            self._device,
            self._patience.round_us,
            floor_us,
            part.read_bytes,
            part.held_bytes,
            workers,
            places_bytes,
        )

    def _data_set(self, part: Part, number: int) -> DataSet:
        data, expected = part.draw(self._problem, self._settings.seed, number, self._device.torch_device)
        if number:  # changes are tried on the first set alone
            expected = [_without_values(e) for e in expected]
        return DataSet(data.given, expected)

    def _lay_out(self, part: Part, sets: Sequence[DataSet], count: int) -> list[list[TensorRef]]:
        layouts = part.layouts
        given = [pair for i in range(count) for pair in zip(sets[i % DATA_SETS].inputs, layouts, strict=True)]
        refs = self._device.arena.lay_out(given)
        return [refs[i * len(layouts) : (i + 1) * len(layouts)] for i in range(count)]


def _without_values(expected: oracle.Expected) -> oracle.Expected:
    return replace(expected, values=expected.values.new_empty(0))
