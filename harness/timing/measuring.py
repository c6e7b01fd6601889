"""The data and the clock of a part: made and asked here alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.device.base import Device
from harness.protocol.wire import TensorRef
from harness.timing.background_load import BackgroundLoad
from harness.timing.data.case_data import CaseData, prepare_case
from harness.timing.data.data_set import DataSet
from harness.timing.part import Part
from harness.timing.patience import Patience
from harness.timing.rounds.clock import Clock
from harness.timing.rounds.conditions import summary
from harness.timing.rounds.contender import Contender
from harness.timing.rounds.null_cost import NullCost
from harness.timing.rounds.schedule import Schedule
from harness.verdict import Conditions


def make_data(device: Device, part: Part, sets: Sequence[DataSet], buffers: Sequence[Sequence[TensorRef]]) -> CaseData:
    """What is needed of `sets` is copied."""
    return prepare_case(device, part.function, sets, buffers, part.early)


@dataclass(frozen=True)
class Measured:
    """`left_out` says why a baseline failed, by its name. `busy_share` is what other programs took of the machine,
    `conditions` what was seen of the device."""

    left_out: dict[str, str]
    busy_share: float
    conditions: Conditions | None


def measure(
    device: Device,
    data: CaseData,
    null: Contender,
    contenders: Sequence[Contender],
    patience: Patience,
    timeout_s: float,
) -> Measured:
    """Fill the contenders' rounds. Raises SubmissionError when the first of them, the submission, fails."""
    clock = Clock(device, data, timeout_s)
    null_cost = NullCost(clock, null, by_length=not device.is_cpu)
    schedule = Schedule(clock, null_cost, contenders, patience.round_us)
    background = BackgroundLoad()
    left_out = schedule.measure(patience.budget_s, patience.half_width, patience.least_rounds)
    busy_share = background.share() if device.is_cpu else 0.0
    return Measured(left_out, busy_share, summary(schedule.kept, schedule.discarded))
