"""The input pool and the clock of a part: made and asked here alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.device.base import Device
from harness.protocol.wire import TensorRef
from harness.timing.background_load import BackgroundLoad
from harness.timing.clock import Clock
from harness.timing.contender import Contender
from harness.timing.input_pool import DataSet, InputPool
from harness.timing.part import Part
from harness.timing.patience import Patience


def make_pool(device: Device, part: Part, sets: Sequence[DataSet], buffers: Sequence[Sequence[TensorRef]]) -> InputPool:
    """The pool copies what it needs of `sets`."""
    return InputPool(device, part.function, sets, buffers, part.early)


@dataclass(frozen=True)
class Measured:
    """`left_out` says why a baseline failed, by its name. `busy_share` is what other programs took of the machine."""

    left_out: dict[str, str]
    busy_share: float


def measure(
    device: Device,
    pool: InputPool,
    null: Contender,
    contenders: Sequence[Contender],
    patience: Patience,
    timeout_s: float,
) -> Measured:
    """Fill the contenders' rounds. Raises SubmissionError when the first of them, the submission, fails."""
    clock = Clock(device, pool, null, timeout_s, patience.round_us)
    background = BackgroundLoad()
    left_out = clock.measure(contenders, patience.budget_s, patience.half_width, patience.least_rounds)
    return Measured(left_out, background.share() if device.is_cpu else 0.0)
