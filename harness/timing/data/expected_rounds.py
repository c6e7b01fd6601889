"""What rounds must have returned, computed from what the buffers held. No clock runs meanwhile.

If the reference treats rows independently, only the sampled rows are computed; otherwise whole outputs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from harness.timing.data.data_set import CaseOutputs
from harness.timing.data.exact import TOGETHER_BYTES, Exact
from harness.timing.data.pooled_input import Contents, PooledInput
from harness.timing.data.sample_plan import SamplePlan

PlannedRound = tuple[SamplePlan, Contents]
"""What to compute of a round, and what its buffers held."""


@dataclass(frozen=True)
class ExpectedRound:
    """What a round must have returned, float64, for each output of the problem."""

    elements: list[np.ndarray]
    """The planned elements, shape (calls, rows * elements)."""
    full: list[torch.Tensor]
    """The output of the buffer to compare in every element; no tensors if there is none."""


class ExpectedRounds:
    """Computes what rounds of one case must have returned."""

    def __init__(self, exact: Exact, inputs: Sequence[PooledInput], outputs: CaseOutputs) -> None:
        self._exact = exact
        self._inputs = inputs
        self._outputs = outputs

    def of(self, rounds: Sequence[PlannedRound]) -> Iterator[ExpectedRound]:
        """One for each of `rounds`, in order. Independent rows of several rounds are computed together, since a few
        rows leave a GPU idle."""
        if self._outputs.rows == 1:
            yield from (self._from_whole_outputs(plan, contents) for plan, contents in rounds)
            return
        pieces = [(piece, contents) for plan, contents in rounds for piece in self._pieces(plan)]
        computed = (expected for batch in self._batches(pieces) for expected in self._from_rows(batch))
        for plan, _ in rounds:
            parts = list(islice(computed, len(self._pieces(plan))))
            elements = [np.concatenate(values) for values in zip(*(part.elements for part in parts), strict=True)]
            yield ExpectedRound(elements, parts[-1].full)

    def _pieces(self, plan: SamplePlan) -> list[SamplePlan]:
        """`plan` in plans of as many calls as may be computed together; the full comparison goes with the last."""
        calls = max(1, TOGETHER_BYTES // max(1, self._row_bytes * plan.rows.shape[1]))
        starts = range(0, len(plan.buffers), calls)
        return [
            SamplePlan(
                plan.buffers[start : start + calls],
                plan.rows[start : start + calls],
                [elements[start : start + calls] for elements in plan.elements],
                plan.full if start == starts[-1] else None,
            )
            for start in starts
        ]

    @property
    def _row_bytes(self) -> int:
        """Bytes of one row of all inputs in float64."""
        return sum(8 * tensor.buffers.numel // self._outputs.rows for tensor in self._inputs)

    def _batches(self, rounds: Sequence[PlannedRound]) -> Iterator[Sequence[PlannedRound]]:
        """`rounds` in order, as many at a time as may be computed together."""
        first, size = 0, 0
        for position, (plan, _) in enumerate(rounds):
            needed = self._rows_of(plan) * self._row_bytes
            if size and size + needed > TOGETHER_BYTES:
                yield rounds[first:position]
                first, size = position, 0
            size += needed
        yield rounds[first:]

    def _rows_of(self, plan: SamplePlan) -> int:
        """How many rows have to be computed."""
        return plan.rows.size + (self._outputs.rows if plan.full is not None else 0)

    def _from_rows(self, rounds: Sequence[PlannedRound]) -> list[ExpectedRound]:
        inputs = [self._rows_to_compute(plan, contents) for plan, contents in rounds]
        outputs = self._exact([torch.cat(t) if len(t) > 1 else t[0] for t in zip(*inputs, strict=True)])
        expected, start = [], 0
        for plan, _ in rounds:
            middle, end = start + plan.rows.size, start + self._rows_of(plan)
            taken = [_taken(o[start:middle], elements) for o, elements in zip(outputs, plan.elements, strict=True)]
            expected.append(ExpectedRound(taken, [] if plan.full is None else [o[middle:end] for o in outputs]))
            start = end
        return expected

    def _rows_to_compute(self, plan: SamplePlan, contents: Contents) -> list[torch.Tensor]:
        """For each input the sampled rows of the called buffers, then all rows of the buffer to compare fully."""
        device = contents.chosen.device
        buffers = torch.tensor(plan.buffers, device=device).repeat_interleave(plan.rows.shape[1])
        rows = torch.from_numpy(plan.rows).to(device).reshape(-1)
        numbers = contents.chosen[buffers]
        pairs = zip(self._inputs, contents.changes, strict=True)
        sampled = [tensor.changed_rows(numbers, buffers, rows, change) for tensor, change in pairs]
        if plan.full is None:
            return sampled
        whole = contents.of_buffer(self._inputs, plan.full)
        return [torch.cat(pair) for pair in zip(sampled, whole, strict=True)]

    def _from_whole_outputs(self, plan: SamplePlan, contents: Contents) -> ExpectedRound:
        taken: list[list[np.ndarray]] = [[] for _ in self._outputs.forms]
        full: list[torch.Tensor] = []
        for call, buffer in enumerate(plan.buffers):
            outputs = self._whole_outputs(buffer, contents)
            for values, output, elements in zip(taken, outputs, plan.elements, strict=True):
                values.append(_taken(output, elements[call : call + 1]))
            full = outputs if buffer == plan.full else full
        if plan.full is not None and plan.full not in plan.buffers:
            full = self._whole_outputs(plan.full, contents)
        return ExpectedRound([np.concatenate(values) for values in taken], full)

    def _whole_outputs(self, buffer: int, contents: Contents) -> list[torch.Tensor]:
        return self._exact(contents.of_buffer(self._inputs, buffer))


def _taken(rows: torch.Tensor, elements: np.ndarray) -> np.ndarray:
    """Of as many rows as `elements`, (calls, rows, elements), has: these elements, (calls, rows * elements)."""
    calls, count, _ = elements.shape
    where = torch.from_numpy(elements).to(rows.device)
    return rows.reshape(calls, count, -1).gather(2, where).reshape(calls, -1).cpu().numpy()
