"""Comparing what the judge saw of a round with what the round must have returned, after the clock has stopped."""

from __future__ import annotations

import secrets

import numpy as np
import torch

from harness import oracle
from harness.device.base import Device
from harness.errors import SubmissionError
from harness.oracle import dropout
from harness.oracle.form import check_form
from harness.oracle.result_dtypes import eps_of
from harness.reasons import Reason
from harness.timing.data.data_set import CaseOutputs
from harness.timing.data.expected_rounds import ExpectedRound
from harness.timing.rounds.contender import Contender
from harness.timing.rounds.round import Round

# A drop rate in a timed call is wrong if it is less probable than this. A case has about a hundred such calls.
IMPROBABLE = 1e-12

# Masks of this many rounds, at most so many elements of each, are judged together. The rates at which honest masks are
# refused add up over cases and contenders.
MASKED_ROUNDS = 3
MASK_ELEMENTS = 1 << 22
MASKS_FALSE_ALARM_RATE = dropout.FALSE_ALARM_RATE / 100


class Inspector:
    """Compares rounds of one case with what they must have returned."""

    def __init__(self, device: Device, outputs: CaseOutputs) -> None:
        self._device = device
        self._outputs = outputs
        self._window_seed = secrets.randbits(63)

    def judge(self, played: Round, expected: ExpectedRound) -> None:
        """Raises SubmissionError when something is wrong with the round."""
        evidence, name = played.evidence, played.contender.name
        if evidence.named.forbidden:
            raise SubmissionError(Reason.FORBIDDEN_OP, f"{evidence.named.forbidden[0]} ran in a timed call.")
        for outputs in evidence.named.outputs:
            check_form(outputs, self._outputs.forms, self._device.torch_device.type, emulated=False)
        for position in range(len(self._outputs.forms)):
            if not self._as_expected(evidence.seen[position][evidence.compared], expected.elements[position], position):
                raise SubmissionError(
                    Reason.WRONG_WHEN_TIMED,
                    f"{name} gave a wrong element in a timed call, on data that it had not seen before.",
                )
            if evidence.full is not None:
                got = self._read_fully(played, evidence.full, position)
                self._compare_fully(name, got, expected.full[position], position)
                self._compare_masks(played.contender, got, expected.full[position], position)

    def _read_fully(self, played: Round, call: int, position: int) -> torch.Tensor:
        named, whole = played.evidence.named, played.evidence.whole[position]
        if whole is not None:
            return whole
        return played.contender.reader.read(named.outputs[call][position], named.handles)

    def _as_expected(self, seen: np.ndarray, expected: np.ndarray, position: int) -> bool:
        with np.errstate(invalid="ignore"):
            ulp = eps_of(self._outputs.forms[position].dtype)  # as harness.oracle.comparison allows
            near = np.abs(seen - expected) <= np.fmax(self._outputs.tolerances[position], ulp * np.abs(expected))
        if self._outputs.forms[position].dropout:
            near |= seen == 0.0
        return bool((near | (seen == expected) | (np.isnan(seen) & np.isnan(expected))).all())

    def _compare_fully(self, name: str, got: torch.Tensor, values: torch.Tensor, position: int) -> None:
        form = self._outputs.forms[position]
        expected = oracle.Expected(values.reshape(form.shape), form, self._outputs.tolerances[position], 0.0)
        comparison = oracle.compare(got, expected)
        if form.dropout:
            _require_rate(name, got, expected.values, form.dropout)
        if not comparison.ok:
            raise SubmissionError(Reason.WRONG_WHEN_TIMED, f"{name}, in a timed call: {comparison.message}.")

    def _compare_masks(self, contender: Contender, got: torch.Tensor, values: torch.Tensor, position: int) -> None:
        """Masks of timed calls are judged as those of observed calls are: observed calls are too few to time."""
        p = self._outputs.forms[position].dropout
        masks = contender.masks.setdefault(position, [])
        if not p or len(masks) == MASKED_ROUNDS:
            return
        seen, kept = self._mask_window(got), self._mask_window(values.reshape(got.shape))
        masks.append(dropout.dropped(seen, kept, p, _random(kept.device)).cpu().numpy())
        text = len(masks) == MASKED_ROUNDS and dropout.unlikely(masks, p, MASKS_FALSE_ALARM_RATE)
        if text:
            raise SubmissionError(Reason.NOT_RANDOM, f"{contender.name}, the mask of timed calls: {text}.")

    def _mask_window(self, output: torch.Tensor) -> torch.Tensor:
        """Neighbouring rows of at most MASK_ELEMENTS in all, the same in every round."""
        rows = output.reshape(-1, output.shape[-1])
        count = max(1, MASK_ELEMENTS // rows.shape[1])
        first = self._window_seed % max(len(rows) - count + 1, 1)
        return rows[first : first + count]


def _require_rate(name: str, got: torch.Tensor, kept: torch.Tensor, p: float) -> None:
    """Raises SubmissionError where of the elements that show their fate too few or too many were dropped."""
    shown = kept != 0
    zeros, count = int(((got == 0) & shown).sum()), int(shown.sum())
    if zeros and dropout.p_value(np.array(zeros), count, p) < IMPROBABLE:
        text = f"{zeros:,} of {count:,} elements were dropped with p = {p:g}"
        raise SubmissionError(Reason.WRONG_WHEN_TIMED, f"{name}, in a timed call: {text}.")


def _random(device: torch.device) -> torch.Generator:
    """A generator with a seed that nobody knows."""
    generator = torch.Generator(device)
    generator.seed()
    return generator
