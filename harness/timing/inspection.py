"""What a round of a contender left, compared with what it must have left, after its clock has stopped."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
import torch

from harness import oracle
from harness.device.base import Device
from harness.errors import SubmissionError
from harness.oracle import dropout
from harness.oracle.form import check_form
from harness.protocol.wire import Named, OutputRef
from harness.reasons import Reason
from harness.timing.contender import Contender
from harness.timing.input_pool import Changes, ExpectedRound, InputPool, SamplePlan

# A drop rate in a timed call is wrong when it is less probable than this: there are a hundred such calls in a case.
IMPROBABLE = 1e-12

# The masks of so many rounds, at most so many elements of each, are looked at together; the rates at which honest ones
# are refused add up over cases and contenders.
MASKED_ROUNDS = 3
MASK_ELEMENTS = 1 << 22
MASKS_FALSE_ALARM_RATE = dropout.FALSE_ALARM_RATE / 100


@dataclass(frozen=True)
class Round:
    """One round as it was seen: the calls that are compared, and what stood in each output where the plan and others
    like it look, (calls, rows * elements)."""

    contender: Contender
    plan: SamplePlan
    compared: list[int]
    full: int
    """The call that is compared in all its elements."""
    changes: Changes
    elapsed_s: float
    issue_us: float
    named: Named
    seen: list[np.ndarray]
    mapped: bool
    """Whether all the memory that was looked at had been mapped before; else its time means nothing."""

    @property
    def calls(self) -> int:
        return len(self.named.outputs)


class Inspector:
    """Compares rounds of one case."""

    def __init__(self, device: Device, pool: InputPool) -> None:
        self._device = device
        self._pool = pool
        self._window_seed = secrets.randbits(63)

    def judge(self, played: Round, expected: ExpectedRound) -> Round:
        """`played`, once it was found to be as `expected`. Raises SubmissionError when something is wrong."""
        named, name = played.named, played.contender.name
        if named.forbidden:
            raise SubmissionError(Reason.FORBIDDEN_OP, f"{named.forbidden[0]} ran in a timed call.")
        for outputs in named.outputs:
            check_form(outputs, self._pool.forms, self._device.torch_device.type, emulated=False)
        for position in range(len(self._pool.forms)):
            if not self._as_expected(played.seen[position][played.compared], expected.elements[position], position):
                raise SubmissionError(
                    Reason.WRONG_WHEN_TIMED,
                    f"{name} gave a wrong element in a timed call, on data that it had not seen before.",
                )
            if not played.contender.trusted:
                ref: OutputRef = named.outputs[played.full][position]
                got = played.contender.reader.read(ref, named.handles)
                self._compare_fully(name, got, expected.full[position], position)
                self._compare_masks(played.contender, got, position)
        return played

    def _as_expected(self, seen: np.ndarray, expected: np.ndarray, position: int) -> bool:
        with np.errstate(invalid="ignore"):
            near = np.abs(seen - expected) <= self._pool.tolerances[position]
        if self._pool.forms[position].dropout:
            near |= seen == 0.0
        return bool((near | (seen == expected) | (np.isnan(seen) & np.isnan(expected))).all())

    def _compare_fully(self, name: str, got: torch.Tensor, values: torch.Tensor, position: int) -> None:
        form = self._pool.forms[position]
        expected = oracle.Expected(values.reshape(form.shape), form, self._pool.tolerances[position], 0.0)
        comparison = oracle.compare(got, expected)
        zeros = int((got == 0).sum()) if form.dropout else 0
        if zeros and dropout.p_value(np.array(zeros), got.numel(), form.dropout) < IMPROBABLE:
            text = f"{zeros:,} of {got.numel():,} elements were dropped with p = {form.dropout:g}"
            raise SubmissionError(Reason.WRONG_WHEN_TIMED, f"{name}, in a timed call: {text}.")
        if not comparison.ok:
            raise SubmissionError(Reason.WRONG_WHEN_TIMED, f"{name}, in a timed call: {comparison.message}.")

    def _compare_masks(self, contender: Contender, got: torch.Tensor, position: int) -> None:
        """Masks of timed calls are judged as those of observed ones are, of which there are too few to time."""
        p = self._pool.forms[position].dropout
        masks = contender.masks.setdefault(position, [])
        if not p or len(masks) == MASKED_ROUNDS:
            return
        masks.append(self._mask_window(got == 0).cpu().numpy())
        text = len(masks) == MASKED_ROUNDS and dropout.unlikely(masks, p, MASKS_FALSE_ALARM_RATE)
        if text:
            raise SubmissionError(Reason.NOT_RANDOM, f"{contender.name}, the mask of timed calls: {text}.")

    def _mask_window(self, dropped: torch.Tensor) -> torch.Tensor:
        """Neighbouring rows, the same in every round, of at most MASK_ELEMENTS."""
        rows = dropped.reshape(-1, dropped.shape[-1])
        count = max(1, MASK_ELEMENTS // rows.shape[1])
        first = self._window_seed % max(len(rows) - count + 1, 1)
        return rows[first : first + count]
