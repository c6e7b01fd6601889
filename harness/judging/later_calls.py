"""Calls of one case after its first, each judged, with words for the one that went wrong."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from harness import oracle
from harness.diagnosis import Evidence, OnWrong
from harness.errors import SubmissionError
from harness.judging.observe import Observation, Seen, Where, same_bits
from harness.layouts import ROWS, SLICED
from harness.oracle.draw import Drawn
from harness.oracle.further import Variant
from harness.protocol.wire import GradMode
from harness.reasons import Reason
from harness.settings import sub_seed

Compare = Callable[[Sequence[torch.Tensor]], list[oracle.Comparison]]

# At the end of what a call is on, where it is made in evaluation.
EVALUATES = ", in evaluation"

_MODES: dict[GradMode, str] = {
    "": "",
    "grad": ", with gradients enabled",
    "no_grad": ", under no_grad",
    "inference": ", in inference mode",
}

_LYING = {
    SLICED: "lie as a part of a larger tensor does",
    ROWS: "are one row seen everywhere",
    "offset": "are not aligned",
}


class LaterCalls:
    """Calls of a case that was right in its `first`. What they are on, the steps of harness.judging.repeated say."""

    def __init__(self, observation: Observation, drawn: Drawn, first: Seen, seed: int, on_wrong: OnWrong) -> None:
        self._on_wrong = on_wrong
        self.observation = observation
        self.drawn = drawn
        self._first = first
        self._seed = seed
        self._number = 1
        self.chance = random.Random(sub_seed(seed, "modes"))
        modes: tuple[GradMode, ...] = ("",) if drawn.reference.differentiation else ("grad", "no_grad")
        self._modes = itertools.cycle(self.chance.sample(modes, len(modes)))
        self._kept = [(1, first)]

    @cached_property
    def holds_in_evaluation(self) -> bool:
        """Whether the case's own results are right in evaluation, too."""
        return self.drawn.reference.holds_in_evaluation(self.drawn.data, self.drawn.expected)

    def as_first(self, tensors: Sequence[torch.Tensor]) -> list[oracle.Comparison]:
        """Compare results of the first call's data; none is needed of what is the same to the bit."""
        if all(same_bits(a, b) for a, b in zip(self._first.tensors, tensors, strict=True)):
            return []
        return oracle.compare_all(tensors, self.drawn.expected)

    def rows(self, variant: Variant) -> str:
        """Words for a size of the inputs that is another, empty for none."""
        now, before = variant.reference.case, self.drawn.reference.case
        return "" if now.shapes == before.shapes else f", with inputs of {now.shape_text} after {before.shape_text}"

    def lying(self, variant: Variant) -> str:
        """Words for how its data lie, empty where that is as the case's own do."""
        now, before = variant.reference.case, self.drawn.reference.case
        if now.upstream != before.upstream:
            return f", where upstream gradients {_LYING[now.upstream]}"
        if now.contiguous:
            apart = ", ".join(str(i) for i in range(len(now.shapes)) if i not in now.contiguous)
            return f", where some inputs ({apart}) {_LYING[now.layout]} and the others are contiguous"
        return "" if now.layout == before.layout else f", where inputs {_LYING[now.layout]}"

    def stage(
        self, variant: Variant | None = None, model: int = 0, *, train: bool = True, on: Where = "beside"
    ) -> None:
        """Have the next calls be the case's own, or `variant`'s, which lies there; of the `model` of that number; in
        the reference's mode where they `train`. Raises SubmissionError."""
        reference = self.drawn.reference
        expected = variant.expected if variant else self.drawn.expected
        where: Where = on if variant else "own"
        self.observation.stage(
            reference.call, expected, train=train and reference.judged_in_training, on=where, model=model
        )

    def judge(
        self, on: str, compare: Compare, mode: GradMode | None = None, *, keeps: bool = True,
        variant: Variant | None = None,
    ) -> None:  # fmt: skip
        """One call, of a kind that `on` says, whose results `compare` judges: the case's own, or `variant`'s. What it
        `keeps` must be unchanged in the end. Raises SubmissionError."""
        self._number += 1
        chosen = next(self._modes) if mode is None else mode
        with self.said(on + _MODES[chosen]):
            # On the emulator the first calls had threads forwards and at random.
            seen = self.observation.call("reverse", self._seed + self._number, mode=chosen, keeps=keeps)
            wrong = next((c for c in compare(seen.tensors) if not c.ok), None)
            if wrong:
                self._tell(seen, variant)
                raise SubmissionError(Reason.WRONG_OUTPUT, f"{self._cause(seen, variant)}{_worst(wrong)}")
        if keeps:
            self._kept.append((self._number, seen))

    @contextlib.contextmanager
    def said(self, on: str) -> Iterator[None]:
        """A failure within it is one of a later call, and says which."""
        try:
            yield
        except SubmissionError as error:
            again = error.reason == Reason.WRONG_OUTPUT
            reason = Reason.WRONG_WHEN_CALLED_AGAIN if again else error.reason
            message = f"Its first call was right. Call {self._number}, on {on}: {error.message}"
            raise SubmissionError(reason, message) from error

    def require_unchanged_outputs(self) -> None:
        """Raises SubmissionError for an output of a call so far that is not what it was."""
        for number, seen in self._kept:
            require_unchanged(self.observation, seen, self.drawn.expected, f"call {number}", self._number - number)

    def _cause(self, seen: Seen, variant: Variant | None) -> str:
        """What a wrong result is, where it is known."""
        whole = len(seen.tensors) == len(self._first.tensors)
        if whole and all(same_bits(a, b) for a, b in zip(self._first.tensors, seen.tensors, strict=True)):
            return "it gave the first call's result. "
        if variant and self._has_other_weights(variant):
            stale = replace(variant, reference=replace(variant.reference, model=self.drawn.reference.model))
            if all(c.ok for c in stale.compare(seen.tensors)):
                return "it gave what the first weights give. "
        return ""

    def _tell(self, seen: Seen, variant: Variant | None) -> None:
        """Keep a wrong result for whoever asks why it is wrong; none of a part of a call."""
        drawn, first = self.drawn, self._first.tensors
        if len(seen.tensors) != len(drawn.expected):
            return
        earlier = [kept.tensors for _, kept in self._kept]
        if variant is None:
            evidence = Evidence(drawn.reference, drawn.data, drawn.expected, seen.tensors, [first], earlier)
        else:
            evidence = Evidence(
                variant.reference, variant.data, variant.expected_in_full, seen.tensors, (), earlier,
                drawn.reference.model if self._has_other_weights(variant) else None, drawn.data,
            )  # fmt: skip
        self._on_wrong(evidence)

    def _has_other_weights(self, variant: Variant) -> bool:
        return variant.reference.model is not self.drawn.reference.model


def require_unchanged(
    observation: Observation, seen: Seen, expected: Sequence[oracle.Expected], call: str, later: int
) -> None:
    """Raises SubmissionError for an output of a call that is not what it was when it was returned, so many calls
    `later`."""
    for before, now, wanted in zip(seen.tensors, observation.read(seen.ran), expected, strict=False):
        if not wanted.form.of_input and not same_bits(before, now):
            raise SubmissionError(
                Reason.OUTPUT_CHANGED,
                f"An output changed after it was returned: {int((before != now).sum()):,} of {before.numel():,} "
                f"elements of {wanted.form.name} of {call} were others after {later} more calls. Return a new tensor "
                "from each call, and never a buffer that a later call writes to.",
            )


def _worst(comparison: oracle.Comparison) -> str:
    at = ", ".join(map(str, comparison.worst_index))
    return (
        f"{comparison.message}; the worst, at [{at}], is {comparison.got:.9g} and should be {comparison.expected:.9g}."
    )
