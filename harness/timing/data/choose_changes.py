"""What has to change in the inputs of a case when a round begins, so that earlier work is of no use to a submission.

By default one element in CHANGED_ONE_IN of every input changes. New values are large ones of the same innermost
dimensions. They move the mean of a thousand elements by about a thousandth of the elements' standard deviation, far
outside any tolerance, so that statistics of the old data are wrong everywhere and not only at the changed elements.
Values from farther away would move it more. But where rows differ in offset and scale they are outliers, and what an
outlier becomes may be rounded by more than the tolerance, which belongs to the data as they were drawn.

Two kinds of references need more:

- One that multiplies matrices. Products are linear: if a thousandth of the elements changes, a thousandth of the work
  corrects a kept result. There every element changes; copying costs little beside multiplying.
- One most of whose outputs stay right after the change, which is tried on the data: a submission could recompute the
  few wrong ones. There more elements change, or all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from harness.device.base import Device
from harness.errors import out_of_memory
from harness.protocol.wire import TensorRef
from harness.timing.data.data_set import CaseOutputs, DataSet
from harness.timing.data.exact import TOGETHER_BYTES, Exact
from harness.timing.data.pooled_input import CHANGED_ONE_IN, InputBuffers, PooledInput, SparseInput, WholeInput

# The share of output elements that a change should make wrong. Below MOST, one element of every row changes where rows
# are short. Below SOME, as where each element is computed alone or a 16-bit tolerance is wide, all inputs change on a
# CPU; a GPU's memory has no room for that.
MOST, SOME = 0.5, 0.1

# In rows shorter than this, drawing one element of each takes more memory than the inputs do.
SHORTEST_ROW = 64

# How exactly a row computed alone must equal the same row computed among others, relative to the output's scale.
SAME_ROWS = 1e-9


def independent_rows(exact: Exact, data: DataSet, device: torch.device) -> int:
    """`CaseOutputs.rows`: two rows of `data`, drawn at random, are computed alone and compared."""
    shapes = [tuple(t.shape) for t in data.inputs] + [expected.form.shape for expected in data.expected]
    rows = {shape[0] if shape else 0 for shape in shapes}
    if len(rows) != 1 or min(rows) < 2:
        return 1
    (count,) = rows
    some = torch.tensor(random.SystemRandom().sample(range(count), 2), device=device)
    try:
        alone = exact([t[some] for t in data.inputs])
    except Exception as error:  # a reference may need as many rows as it was given, as a square product does
        if out_of_memory(error):
            raise
        return 1
    pairs = zip(alone, data.expected, strict=True)
    return count if all(_same_rows(output, expected.values[some]) for output, expected in pairs) else 1


def _same_rows(alone: torch.Tensor, among: torch.Tensor) -> bool:
    # The shape differs where a first dimension only happens to be as long, as that of a weight's gradient.
    if alone.shape != among.shape:
        return False
    scale = torch.nan_to_num(among.abs(), nan=0.0, posinf=0.0).max() if among.numel() else 0.0
    return torch.allclose(alone, among, rtol=0.0, atol=float(scale) * SAME_ROWS, equal_nan=True)


class ChangeTrial:
    """Tries on the first data set how much of the outputs a change makes wrong."""

    def __init__(self, exact: Exact, data: DataSet, outputs: CaseOutputs, early: int) -> None:
        """The first `early` inputs do not change when a round begins."""
        self._exact = exact
        self._data = data
        self._outputs = outputs
        self._early = early

    def wrong_share(self, inputs: Sequence[PooledInput]) -> float:
        """Share of all output elements that leave their tolerance after a change of `inputs`."""
        changed, before = self._trial_rows(self._changed(inputs))
        elements = wrong = 0
        for new, old, tolerance in zip(self._exact(changed), before, self._outputs.tolerances, strict=True):
            elements, wrong = elements + old.numel(), wrong + int(((new - old).abs() > tolerance).sum())
        return wrong / max(elements, 1)

    def _changed(self, inputs: Sequence[PooledInput]) -> list[torch.Tensor]:
        """The first data set as a round in buffer 0 would change it."""
        return [
            t.changed(0, 0, self._draw(t) if t.buffers.can_change and position >= self._early else None)
            for position, t in enumerate(inputs)
        ]

    def _draw(self, tensor: PooledInput) -> object:
        views = tensor.buffers.views
        chosen = torch.zeros(len(views), dtype=torch.long, device=views.device)
        return tensor.draw_change(chosen, [0])

    def _trial_rows(self, changed: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Changed inputs and expected outputs: of independent rows only as many as may be computed together."""
        before = [expected.values.reshape(expected.form.shape) for expected in self._data.expected]
        rows = self._outputs.rows
        if rows == 1:
            return changed, before
        count = min(rows, max(1, TOGETHER_BYTES * rows // max(1, sum(8 * t.numel() for t in changed))))
        return [t[:count] for t in changed], [o[:count] for o in before]


def choose_inputs(
    device: Device, sets: Sequence[DataSet], buffers: Sequence[Sequence[TensorRef]], trial: ChangeTrial, *, linear: bool
) -> list[PooledInput]:
    """Inputs of which so much changes when a round begins that earlier work is of no use. `linear` says whether the
    reference multiplies matrices."""
    data = [
        InputBuffers([s.inputs[i] for s in sets], device.arena.raw, [buffer[i] for buffer in buffers])
        for i in range(len(sets[0].inputs))
    ]
    if linear:
        return [WholeInput(one) for one in data]
    sparse: list[PooledInput] = [SparseInput(one) for one in data]
    wrong = trial.wrong_share(sparse)
    shortest = min((t.shape[-1] for t in sets[0].inputs if t.dim() and t.numel()), default=CHANGED_ONE_IN)
    if wrong < MOST and SHORTEST_ROW <= shortest < CHANGED_ONE_IN:
        denser: list[PooledInput] = [SparseInput(one, spacing=shortest) for one in data]
        if trial.wrong_share(denser) >= SOME:
            return denser
    return [WholeInput(one) for one in data] if wrong < SOME and device.is_cpu else sparse
