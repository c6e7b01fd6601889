"""What the timed rounds of one case are made of: drawn inputs, and what every call must return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness import oracle

# Data sets drawn for a case. Buffers hold them again and again; more sets would only repeat what the changes of each
# round do.
DATA_SETS = 3


@dataclass(frozen=True)
class DataSet:
    """Inputs (contiguous, on the judge's device) and their expected outputs, private to the judge. Only the first data
    set of a case has the expected values."""

    inputs: list[torch.Tensor]
    expected: list[oracle.Expected]


@dataclass(frozen=True)
class CaseOutputs:
    """The outputs of a call: for each its form and its absolute tolerance, the widest of all data sets."""

    forms: list[oracle.Form]
    tolerances: list[float]
    rows: int
    """How many rows (entries of the first dimension) the inputs and outputs have if the reference computes each row
    from the same row of the inputs alone; else 1, and an output is one row."""

    @classmethod
    def of(cls, sets: Sequence[DataSet], rows: int) -> CaseOutputs:
        forms = [expected.form for expected in sets[0].expected]
        return cls(forms, [max(s.expected[i].tolerance for s in sets) for i in range(len(forms))], rows)

    def row_length(self, position: int) -> int:
        """Elements in a row of the output at `position`."""
        return math.prod(self.forms[position].shape) // self.rows
