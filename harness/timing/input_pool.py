"""The data of timed rounds: what lies in each buffer, and what must come out of it.

A few data sets are drawn for a case and judged in float64. Again and again each buffer gets one of them, chosen
at random, and whenever a round begins one element in CHANGED_ONE_IN of every input is overwritten, at places
and with values that nobody else knows, so that no input was ever seen before: what was computed
earlier, in another buffer, in another round or before the round began, belongs to other data. The new values
are large ones of the same last dimensions. That moves the mean of a thousand elements by about a thousandth of
their deviation, which is far outside any tolerance, so that statistics of the old data show everywhere
and not only at the changed elements. Values from farther away would move it more, and would not do: where rows
differ in offset and scale, another row's value is an outlier, and what an outlier becomes may be rounded by more
than the tolerance, which is of the data as they were drawn.

That is not enough where a reference multiplies matrices: a product is linear, and what a thousandth of its elements
adds to one that was worked out before is had for a thousandth of the work. There every element changes when a round
begins, to that of one of two data sets, at random: copying takes little beside multiplying. Nor is it enough where
most of what comes out stays right, which is tried on the data: who has worked it out before repairs the rest.

What must come out of changed data is computed afterwards, outside the clock. Where the reference treats
the rows of its inputs (their first dimension) independently, which is tried on the data, only those rows
are computed that were looked at; else all of it.
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from harness import oracle
from harness.device.base import Device
from harness.errors import out_of_memory
from harness.oracle.products import multiplies_matrices
from harness.protocol.wire import TensorRef
from harness.timing.pooled_input import CHANGED_ONE_IN, Input, WholeInput

# Data sets of a case, dealt again and again; more of them would only repeat what the changes do.
DATA_SETS = 3

# Rounds are computed together up to this many bytes of input in float64: what a reference keeps meanwhile, and what
# comes out, is several times that.
TOGETHER_BYTES = 2 << 30

# Of what comes out so much should be wrong after a change. When less than most is, one element of every row is changed
# where rows are short; when not even some is, as where each element is treated alone, or where 16 bits have a wide
# tolerance, on a CPU all of the inputs changes. A GPU's memory has no room for that.
MOST, SOME = 0.5, 0.1

# In rows shorter than this, one element of each takes more memory to draw than the inputs have.
SHORTEST_ROW = 64

# How exactly rows alone must give what they give among the others, relative to the output's scale.
SAME_ROWS = 1e-9


@dataclass(frozen=True)
class DataSet:
    """Inputs (contiguous, on the judge's device) and what must come out of them, private to the judge: its values are
    those of the first data set only."""

    inputs: list[torch.Tensor]
    expected: list[oracle.Expected]


Changes = list[Any]
"""What a round changes, one entry for each input of the problem, as the kind of input draws it; None for what cannot
change."""


@dataclass(frozen=True)
class SamplePlan:
    """What to look at in a round: buffers in the order of their calls, the rows to look at in each (buffers, rows), which
    elements of them in each output of the problem (buffers, rows, elements), and the buffer to compare in full, if any. The
    only row of an output whose rows are not independent is all of it."""

    buffers: list[int]
    rows: np.ndarray
    elements: list[np.ndarray]
    full: int | None


@dataclass(frozen=True)
class ExpectedRound:
    """What a round must have given, float64, for each output of the problem: the picked elements, of shape (calls,
    rows * elements), and the output of the buffer that was picked in full, empty for none."""

    elements: list[np.ndarray]
    full: list[torch.Tensor]


class InputPool:
    """Deals data into the arena's buffers, changes it when a round begins, and knows what must come out."""

    def __init__(
        self,
        device: Device,
        model: torch.nn.Module,
        sets: Sequence[DataSet],
        buffers: Sequence[Sequence[TensorRef]],
        early: int = 0,
    ) -> None:
        """`buffers` lie in the device's arena, one after the other. `model` is the reference.

        The first `early` inputs of a buffer are worked on before the clock starts: they do not change when a round
        begins, and the others are not there before `fill_late`."""
        self._device = device
        self._model64 = copy.deepcopy(model).double()
        self._early = early
        self.buffer_count = len(buffers)
        self.set_count = len(sets)
        self._generator = torch.Generator(device.torch_device).manual_seed(secrets.randbits(63))
        self._chosen = torch.zeros(len(buffers), dtype=torch.long, device=device.torch_device)
        self._numbers: list[int] = []
        self._standing: Changes = []
        self.forms = [e.form for e in sets[0].expected]
        self.tolerances = [max(s.expected[i].tolerance for s in sets) for i in range(len(self.forms))]
        self.rows = self._independent_rows(sets[0])
        """How many rows the inputs have, each treated alone by the reference; 1 when they are not."""
        self._inputs = self._inputs_that_move(multiplies_matrices(model, sets[0].inputs), sets, buffers)
        self._flush = torch.empty(device.flush_bytes, dtype=torch.uint8, device=device.torch_device)

    def _inputs_that_move(
        self, multiplies: bool, sets: Sequence[DataSet], buffers: Sequence[Sequence[TensorRef]]
    ) -> list[Input]:
        """Inputs of which so much changes when a round begins that what was worked out before is of no use."""

        def all_of_them(kind: type[Input], spacing: int = CHANGED_ONE_IN) -> list[Input]:
            raw, count = self._device.arena.raw, len(sets[0].inputs)
            return [
                kind([s.inputs[i] for s in sets], raw, [buffer[i] for buffer in buffers], spacing) for i in range(count)
            ]

        if multiplies:
            return all_of_them(WholeInput)
        inputs = all_of_them(Input)
        moved = self._share_that_moves(inputs, sets[0])
        last = min((t.shape[-1] for t in sets[0].inputs if t.dim() and t.numel()), default=CHANGED_ONE_IN)
        if moved < MOST and SHORTEST_ROW <= last < CHANGED_ONE_IN:
            denser = all_of_them(Input, spacing=last)
            if self._share_that_moves(denser, sets[0]) >= SOME:
                return denser
        return all_of_them(WholeInput) if moved < SOME and self._device.is_cpu else inputs

    def _share_that_moves(self, inputs: Sequence[Input], data: DataSet) -> float:
        """Of the elements that come out, how many are wrong after a change as a round begins with."""
        numbers = torch.zeros(self.buffer_count, dtype=torch.long, device=self._device.torch_device)
        changed = [
            t.changed(0, 0, t.draw_change(numbers, [0], self._generator) if t.changes and i >= self._early else None)
            for i, t in enumerate(inputs)
        ]
        outputs = [expected.values.reshape(expected.form.shape) for expected in data.expected]
        if self.rows > 1:  # some are enough
            count = min(self.rows, max(1, TOGETHER_BYTES * self.rows // max(1, sum(8 * t.numel() for t in changed))))
            changed, outputs = [t[:count] for t in changed], [o[:count] for o in outputs]
        elements = moved = 0
        for new, old, tolerance in zip(self._outputs(changed), outputs, self.tolerances, strict=True):
            elements, moved = elements + old.numel(), moved + int(((new - old).abs() > tolerance).sum())
        return moved / max(elements, 1)

    def _independent_rows(self, data: DataSet) -> int:
        shapes = [tuple(t.shape) for t in data.inputs] + [form.shape for form in self.forms]
        rows = {shape[0] if shape else 0 for shape in shapes}
        if len(rows) != 1 or min(rows) < 2:
            return 1
        (count,) = rows
        some = torch.randperm(count, generator=self._generator, device=self._device.torch_device)[:2]
        try:
            alone = self._outputs([t[some] for t in data.inputs])
        except Exception as error:  # a reference may need as many rows as it was given, as a square product does
            if out_of_memory(error):
                raise
            return 1
        for output, expected in zip(alone, data.expected, strict=True):
            among = expected.values[some]
            scale = torch.nan_to_num(among.abs(), nan=0.0, posinf=0.0).max() if among.numel() else 0.0
            if output.shape != among.shape:  # a first dimension that only happens to be as long, as a weight's gradient
                return 1
            if not torch.allclose(output, among, rtol=0.0, atol=float(scale) * SAME_ROWS, equal_nan=True):
                return 1
        return count

    @torch.no_grad()
    def _outputs(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return oracle.exact_outputs(self._model64, inputs)

    @property
    def changes_nothing(self) -> bool:
        """Whether no input can be changed when a round begins."""
        return not any(tensor.changes for tensor in self._inputs[self._early :])

    # ------------------------------------------------------------------ before and at the beginning of a round

    @property
    def has_late_part(self) -> bool:
        """Whether contenders do something before the clock starts, without the rest of their inputs."""
        return self._early > 0

    def fill(self) -> None:
        """Put data sets into buffers at random."""
        self._chosen = torch.randint(
            self.set_count, (self.buffer_count,), generator=self._generator, device=self._device.torch_device
        )
        self._numbers = self._chosen.tolist()
        for tensor in self._inputs:
            tensor.fill(self._chosen)
        self._standing = [None] * len(self._inputs)

    def hide_late(self) -> None:
        """Take what is not `early` out of the buffers."""
        for tensor in self._inputs[self._early :]:
            tensor.hide()
        self._device.synchronize()

    def fill_late(self) -> None:
        """Put what is not `early` into the buffers, once the early part has been worked on."""
        for position, tensor in enumerate(self._inputs[self._early :], self._early):
            tensor.fill(self._chosen)
            self._standing[position] = None

    def prepare(self, buffers: Sequence[int]) -> Changes:
        """Decide what a round on some of `buffers` will change, undo what the last one changed, and leave nothing in the
        cache."""
        changes: Changes = []
        for position, (tensor, standing) in enumerate(zip(self._inputs, self._standing, strict=True)):
            if standing is not None:
                tensor.take_back(standing, self._chosen)
            late = position >= self._early and tensor.changes
            changes.append(tensor.draw_change(self._chosen, buffers, self._generator) if late else None)
        self._standing = list(changes)  # a round keeps `changes`: what was changed is compared after other rounds
        self._flush.fill_(self._numbers[0] + 1)
        self._device.synchronize()
        return changes

    def change(self, changes: Changes) -> None:
        """Change the secret elements of every buffer, and wait until that has happened."""
        for tensor, change in zip(self._inputs, changes, strict=True):
            if change is not None:
                tensor.put(change)
        self._device.synchronize()

    # ------------------------------------------------------------------ after rounds

    def written_by_others(self, buffers: Iterable[int]) -> bool:
        """Whether anybody but the judge wrote into the inputs of one of `buffers` since they were dealt."""
        return any(
            not torch.equal(tensor.bits(buffer), wanted.view(torch.uint8))
            for buffer in buffers
            for tensor, wanted in zip(self._inputs, self._buffer_inputs(buffer, self._standing), strict=True)
            if wanted.dim() and wanted.numel()
        )

    def expected(self, rounds: Sequence[tuple[SamplePlan, Changes]]) -> Iterator[ExpectedRound]:
        """What rounds on the last deal must have given, in their order. Many are computed together, since few rows
        leave a GPU idle."""
        if self.rows == 1:
            yield from (self._wanted_whole(plan, changes) for plan, changes in rounds)
            return
        pieces = [(piece, changes) for plan, changes in rounds for piece in self._pieces(plan)]
        found = (wanted for some in self._in_batches(pieces) for wanted in self._wanted_rows(some))
        for plan, _ in rounds:
            parts = list(islice(found, len(self._pieces(plan))))
            elements = [np.concatenate(values) for values in zip(*(part.elements for part in parts), strict=True)]
            yield ExpectedRound(elements, parts[-1].full)

    def _pieces(self, plan: SamplePlan) -> list[SamplePlan]:
        """`plan` as plans of so many calls as may be computed together; what is compared in full goes with the last."""
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
        """Of a row of the inputs in float64."""
        return sum(8 * tensor.bank[0].numel() // self.rows for tensor in self._inputs)

    def _in_batches(
        self, plans: Sequence[tuple[SamplePlan, Changes]]
    ) -> Iterator[Sequence[tuple[SamplePlan, Changes]]]:
        """`plans` in order, as many at a time as may be computed together."""
        first, size = 0, 0
        for position, (plan, _) in enumerate(plans):
            needed = self._rows_of(plan) * self._row_bytes
            if size and size + needed > TOGETHER_BYTES:
                yield plans[first:position]
                first, size = position, 0
            size += needed
        yield plans[first:]

    def _wanted_rows(self, plans: Sequence[tuple[SamplePlan, Changes]]) -> list[ExpectedRound]:
        inputs = [self._rows_to_compute(plan, changes) for plan, changes in plans]
        outputs = self._outputs([torch.cat(t) if len(t) > 1 else t[0] for t in zip(*inputs, strict=True)])
        wanted, start = [], 0
        for plan, _ in plans:
            middle, end = start + plan.rows.size, start + self._rows_of(plan)
            picked = [_taken(o[start:middle], elements) for o, elements in zip(outputs, plan.elements, strict=True)]
            wanted.append(ExpectedRound(picked, [] if plan.full is None else [o[middle:end] for o in outputs]))
            start = end
        return wanted

    def _rows_of(self, plan: SamplePlan) -> int:
        """How many rows have to be computed."""
        return plan.rows.size + (self.rows if plan.full is not None else 0)

    def _rows_to_compute(self, plan: SamplePlan, changes: Changes) -> list[torch.Tensor]:
        """For each input the picked rows of the called buffers, and then all of the buffer that was picked in full."""
        device = self._device.torch_device
        buffers = torch.tensor(plan.buffers, device=device).repeat_interleave(plan.rows.shape[1])
        rows = torch.from_numpy(plan.rows).to(device).reshape(-1)
        numbers = self._chosen[buffers]
        picked = [t.changed_rows(numbers, buffers, rows, c) for t, c in zip(self._inputs, changes, strict=True)]
        if plan.full is None:
            return picked
        whole = self._buffer_inputs(plan.full, changes)
        return [torch.cat(pair) for pair in zip(picked, whole, strict=True)]

    def _wanted_whole(self, plan: SamplePlan, changes: Changes) -> ExpectedRound:
        picked: list[list[np.ndarray]] = [[] for _ in self.forms]
        full: list[torch.Tensor] = []
        for call, buffer in enumerate(plan.buffers):
            outputs = self._outputs(self._buffer_inputs(buffer, changes))
            for found, output, elements in zip(picked, outputs, plan.elements, strict=True):
                found.append(_taken(output, elements[call : call + 1]))
            full = outputs if buffer == plan.full else full
        if plan.full is not None and plan.full not in plan.buffers:
            full = self._outputs(self._buffer_inputs(plan.full, changes))
        return ExpectedRound([np.concatenate(found) for found in picked], full)

    def _buffer_inputs(self, buffer: int, changes: Changes) -> list[torch.Tensor]:
        number = self._numbers[buffer]
        return [t.changed(number, buffer, c) for t, c in zip(self._inputs, changes, strict=True)]

    def row_length(self, position: int) -> int:
        """Elements in a row of one output."""
        return math.prod(self.forms[position].shape) // self.rows


def _taken(rows: torch.Tensor, elements: np.ndarray) -> np.ndarray:
    """From as many rows as `elements`, (calls, rows, elements), asks for: those, (calls, rows * elements)."""
    calls, count, _ = elements.shape
    where = torch.from_numpy(elements).to(rows.device)
    return rows.reshape(calls, count, -1).gather(2, where).reshape(calls, -1).cpu().numpy()
