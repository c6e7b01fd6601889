"""Which elements of a round's outputs the judge reads, and which of its calls it compares.

The system's entropy decides both: no worker can know them from the data of earlier rounds, and no seed repeats them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from harness import oracle
from harness.timing.data import unpredictable
from harness.timing.data.data_set import CaseOutputs

# Sample this many rows of each output in a round, at least one of each call, and this many elements per row; more of an
# output that is one row. Work that is left over when a worker replies must be so little that these miss it in every
# round.
SAMPLED_ROWS = 64
SAMPLES_PER_ROW = 8
SAMPLES_OF_ONE_ROW = 64

# Compare so many calls of a round where the rows of the reference are not independent, as in gradients of parameters.
# If a submission leaves out every other call, they miss it in one of eight rounds. There are at least nine rounds,
# including those from which the number of calls is chosen.
WHOLE_CALLS = 3


@dataclass(frozen=True)
class Samples:
    """Where the outputs of a round are read, drawn before it. An output whose rows are not independent is one row."""

    rows: np.ndarray
    """Rows of each call, int64, shape (calls, rows)."""
    elements: list[np.ndarray]
    """Elements of these rows, int64, for each output of the problem of shape (calls, rows, elements)."""
    offsets: list[np.ndarray]
    """The same in memory: elements from an output's first, int64, shape (calls, rows * elements)."""


@dataclass(frozen=True)
class SamplePlan:
    """What to compare in a round, and so to compute: `rows` and `elements` are those of `Samples`."""

    buffers: list[int]
    """The buffers of the calls to compare, in their order; the first dimension of `rows` and `elements`."""
    rows: np.ndarray
    elements: list[np.ndarray]
    full: int | None
    """The buffer of the call to compare in every element, if any."""


class Sampler:
    """Draws where rounds of one case are read, and what is compared of them."""

    def __init__(self, outputs: CaseOutputs) -> None:
        self._outputs = outputs
        self._random = random.SystemRandom()

    def draw(self, calls: int) -> Samples:
        """Where to read a round of so many calls."""
        rows = _integers(self._outputs.rows, (calls, self._rows_of_a_call(calls)))
        elements = [self._elements(rows, position) for position in range(len(self._outputs.forms))]
        offsets = [
            _offsets(rows, asked, form, self._outputs.row_length(position))
            for position, (asked, form) in enumerate(zip(elements, self._outputs.forms, strict=True))
        ]
        return Samples(rows, elements, offsets)

    def _rows_of_a_call(self, calls: int) -> int:
        return math.ceil(SAMPLED_ROWS / calls) if self._outputs.rows > 1 else 1

    def _elements(self, rows: np.ndarray, position: int) -> np.ndarray:
        length = self._outputs.row_length(position)
        samples = SAMPLES_PER_ROW if self._outputs.rows > 1 else SAMPLES_OF_ONE_ROW
        return _integers(max(length, 1), (*rows.shape, samples if length else 0))

    def calls_to_compare(self, calls: int) -> list[int]:
        """All calls of a round; a few of them where what one returns can only be computed as a whole."""
        if self._outputs.rows > 1:
            return list(range(calls))
        return self._random.sample(range(calls), min(calls, WHOLE_CALLS))

    def call_to_compare_fully(self, calls: int) -> int:
        return self._random.randrange(calls)


def plan_comparison(samples: Samples, buffers: Sequence[int], compared: Sequence[int], full: int | None) -> SamplePlan:
    """The plan for the calls `compared` of a round on `buffers`, in every element for the call `full`."""
    return SamplePlan(
        [buffers[call] for call in compared],
        samples.rows[compared],
        [of_an_output[compared] for of_an_output in samples.elements],
        None if full is None else buffers[full],
    )


def _integers(below: int, shape: Sequence[int]) -> np.ndarray:
    """Uniform in [0, below), int64."""
    return unpredictable.integers(below, shape, torch.device("cpu")).numpy()


def _offsets(rows: np.ndarray, elements: np.ndarray, form: oracle.Form, row_length: int) -> np.ndarray:
    """`Samples.offsets` of one output."""
    flat = (rows[:, :, None] * row_length + elements).reshape(len(rows), -1)
    if not flat.size:
        return flat
    index = np.unravel_index(flat, form.shape or (1,))
    strides = form.stride or (1,)
    return np.asarray(sum(i * s for i, s in zip(index, strides, strict=True)), dtype=np.int64)
