"""One timed round of one contender as a value, and what a schedule asks of whoever plays it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from harness.protocol.wire import Named
from harness.timing.data.expected_rounds import ExpectedRound
from harness.timing.data.pooled_input import Contents
from harness.timing.data.sample_plan import SamplePlan
from harness.timing.rounds.conditions import Looks
from harness.timing.rounds.contender import Contender, ProcessorTime

# A round in which the judge had to map new memory of the worker is slow through no fault of the worker's, and is played
# again. A submission that gives its memory back in every call makes every round such a round.
MAPPING_TRIES = 3


@dataclass(frozen=True)
class Evidence:
    """What the judge saw of a round, to be compared after its clock has stopped."""

    plan: SamplePlan
    compared: list[int]
    """The calls that the plan is for."""
    full: int | None
    """The call to compare in every element, if any."""
    contents: Contents
    """What the buffers held during the round."""
    named: Named
    seen: list[np.ndarray]
    """Sampled elements of all calls, float64, for each output of shape (calls, rows * elements)."""
    whole: list[torch.Tensor | None]
    """Outputs of the call `full`, read before the worker was asked anything else; None for what could not be read."""


@dataclass(frozen=True)
class Round:
    """What a schedule needs to know of a round, and the evidence for its judging."""

    contender: Contender
    calls: int
    elapsed_s: float
    """By the judge's clock."""
    issue_us: float
    """How long the calls but the first took to return, as the worker says."""
    device_us: float
    """How long a GPU worked on the calls, as the null kernel says; nobody else is asked."""
    mapped: bool
    """Whether the judge had mapped all the memory that it read before the round. Otherwise `elapsed_s` has the mapping
    in it, since what lies there is only read after it."""
    evidence: Evidence
    processor_s: ProcessorTime


class RoundPlayer(Protocol):
    """Plays rounds on one case, one at a time."""

    @property
    def buffer_count(self) -> int: ...

    def use_buffers_for(self, calls: int) -> None:
        """From now on use no more buffers than rounds of so many calls need."""
        ...

    def fill(self) -> None:
        """Put data into all buffers for a set of rounds."""
        ...

    def play(self, contender: Contender, calls: int, lasts_us: float = 0.0, *, check_all_inputs: bool = False) -> Round:
        """A round of so many calls on data that changes when it begins. `lasts_us` is the null kernel's, see wire.Play.
        `check_all_inputs` compares the inputs of all buffers afterwards, not of two.

        Raises SubmissionError when the worker fails."""
        ...

    def seen(self) -> Looks:
        """What was seen of the device since the last `fill`, before and after each round; nothing where nobody
        looks."""
        ...

    def expected(self, rounds: Sequence[Round]) -> Iterator[ExpectedRound]:
        """What rounds since the last `fill` must have returned, in order."""
        ...

    def judge(self, played: Round, expected: ExpectedRound) -> None:
        """Raises SubmissionError when the round is not as expected."""
        ...

    def inputs_were_written(self) -> bool:
        """Whether anybody but the judge wrote into the buffers since they were filled."""
        ...


def play_mapped(
    player: RoundPlayer, contender: Contender, calls: int, lasts_us: float = 0.0, *, check_all_inputs: bool = False
) -> Round:
    """A round during which nothing had to be mapped; the last one tried if there is none in MAPPING_TRIES."""
    for _ in range(MAPPING_TRIES):
        played = player.play(contender, calls, lasts_us, check_all_inputs=check_all_inputs)
        if played.mapped:
            break
    return played
