"""Right more than once: calls after the first, on other data, weights, rows and models, in an order that nobody knows.

What a submission keeps from call to call shows here: a result, packed weights, a size, a counter that is not reset, an
output buffer that it uses again.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from harness import oracle
from harness.diagnosis import Evidence, OnWrong
from harness.errors import SubmissionError, UsageError
from harness.judging.observe import Observation, Seen, Where, same_bits
from harness.oracle.draw import Drawn
from harness.oracle.further import Variant
from harness.protocol.wire import Differentiation, GradMode, Reweighing
from harness.reasons import Reason
from harness.settings import sub_seed

# What follows the first call, each a method of _Calls below.
STEPS = ("data", "weights", "models")

# Where calls are slow each case gets some of the steps, and over all cases each step comes at least so often.
DEALT_TIMES = 5

# What a call of a step is on whose backward comes after another forward.
INTERLEAVED = "its first data, with another forward between its forward and its backward, which came twice"

Compare = Callable[[Sequence[torch.Tensor]], list[oracle.Comparison]]


def deal(cases: Sequence[str], seed: int) -> dict[str, tuple[str, ...]]:
    """Which of STEPS each case gets where it cannot get all: each step as often as the others, which is a secret."""
    chance = random.Random(sub_seed(seed, "steps"))
    names, steps = chance.sample(cases, len(cases)), chance.sample(STEPS, len(STEPS))
    each = min(len(STEPS), -(-DEALT_TIMES * len(STEPS) // max(len(cases), 1)))
    endless = itertools.cycle(steps)
    return {name: tuple(next(endless) for _ in range(each)) for name in names}


def check(
    observation: Observation, drawn: Drawn, first: Seen, seed: int, steps: Sequence[str], on_wrong: OnWrong
) -> None:
    """Call what was called once and was right, `first`, in further ways. `observation` is staged for the case's own
    call, whose outputs the first call kept; its own weights and data are there again at the end.

    `on_wrong` is told of a wrong result. Raises SubmissionError, with words for the step that failed."""
    calls = _Calls(observation, drawn, first, seed, on_wrong)
    if drawn.further is None:
        calls.again()
        return
    for step in random.Random(sub_seed(seed, "order")).sample(steps, len(steps)):
        getattr(calls, step)()
    if drawn.reference.differentiation:
        calls.forward_alone()
        calls.fewer_gradients(drawn.reference.differentiation)
        calls.interleaved()
    calls.require_unchanged_outputs()


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


class _Calls:
    """Calls of one case after its first, each judged."""

    def __init__(self, observation: Observation, drawn: Drawn, first: Seen, seed: int, on_wrong: OnWrong) -> None:
        self._on_wrong = on_wrong
        self._observation = observation
        self._drawn = drawn
        self._further = drawn.further
        self._first = first
        self._seed = seed
        self._number = 1
        self._chance = random.Random(sub_seed(seed, "modes"))
        modes: tuple[GradMode, ...] = ("",) if drawn.reference.differentiation else ("grad", "no_grad")
        self._modes = itertools.cycle(self._chance.sample(modes, len(modes)))
        self._kept = [(1, first)]

    @cached_property
    def _holds_in_evaluation(self) -> bool:
        return self._drawn.reference.holds_in_evaluation(self._drawn.data)

    def _holds_for(self, variant: Variant) -> bool:
        return variant.reference.holds_in_evaluation(variant.data)

    def again(self) -> None:
        """The first call once more."""
        self._judge("its first data again", self._as_first, keeps=False)

    def data(self) -> None:
        """Other data in the same memory, then the first in other memory. Raises UsageError for a reference whose
        outputs have other shapes then: no form is known of what a submission has to return."""
        assert self._further is not None
        variant = self._further.inputs
        shapes, others = ([e.form.shape for e in of] for of in (self._drawn.expected, variant.expected))
        if shapes != others:
            raise UsageError(
                f"The reference's outputs have the shapes {shapes} in case '{self._drawn.reference.case.name}', and "
                f"{others} on other data of the same form. Outputs whose shape depends on values cannot be judged."
            )
        self._observation.rewrite(variant.data)
        self._judge("other data in the same memory", variant.compare, variant=variant)
        self._stage(elsewhere=True)  # an address that was kept leads to the other data
        self._judge("its first data again, in other memory", self._as_first)
        self._observation.rewrite(self._drawn.data)
        self._stage()

    def weights(self) -> None:
        """Other weights on other inputs, then the first weights again, each set in another way. They are set back in
        evaluation, in which the model has just been called: who packs weights for it packs them anew."""
        assert self._further is not None
        there, back = self._chance.sample(list(_WAYS), 2)
        variant = self._further.weights
        with self._said(_weights(there)):
            self._observation.reweigh(there, beside=True)
        self._stage(variant)
        on = f"{_weights(there)}{self._rows(variant)}"
        self._judge(on, variant.compare, variant=variant)
        differentiated = bool(self._drawn.reference.differentiation)
        evaluates = not differentiated and self._holds_in_evaluation and self._holds_for(variant)
        if evaluates:
            self._stage(variant, train=False)
            self._judge(on + _EVALUATES, variant.compare, variant=variant)
        self._stage(train=not evaluates)
        with self._said(_weights(back)):
            self._observation.reweigh(back, beside=False)
        self._judge(f"its first weights again, set {_WAYS[back]}{_EVALUATES * evaluates}", self._as_first)
        self._stage()

    def models(self) -> None:
        """A second model on other weights, then the first again; and once more, when one has been built with another
        case's arguments of the constructor. The first model's call after the second's is in evaluation; whether the
        second's is as well, nobody knows."""
        assert self._further is not None
        variant = self._further.weights
        with self._said("a second model beside the first"):
            number = self._observation.construct_beside()
        differentiated = bool(self._drawn.reference.differentiation)
        evaluates = not differentiated and self._chance.choice([True, True, False]) and self._holds_for(variant)
        self._stage(variant, number, train=not evaluates)
        # What a model keeps from inference mode cannot be used outside of it: a program calls it in one of the two.
        mode: GradMode = "" if differentiated else "inference"
        of = f"a second model with other weights{_EVALUATES * evaluates}{self._rows(variant)}"
        self._judge(of, variant.compare, mode, variant=variant)
        evaluates = not differentiated and self._holds_in_evaluation
        self._stage(train=not evaluates)
        self._judge(f"the first model{_EVALUATES * evaluates}, after a second was called", self._as_first)
        self._stage()
        if self._further.init is not None:
            self._build_to_stand_by(self._further.init)
            self._judge("the first model, after one was built with other constructor arguments", self._as_first)

    def _build_to_stand_by(self, init: Sequence[Any]) -> None:
        """A model with another case's arguments. Whether the constructor takes those is that case's to say, and it may
        not be among those that are judged."""
        try:
            with self._said("a model with other constructor arguments beside the first"):
                self._observation.construct_to_stand_by(init)
        except SubmissionError as error:
            if error.reason != Reason.LOAD_FAILED:
                raise

    def forward_alone(self) -> None:
        """The outputs of a training step without its backward."""
        reference = self._drawn.reference
        expected = reference.of_part(self._drawn.expected, "forward")
        evaluates = self._holds_in_evaluation
        trains = reference.judged_in_training and not evaluates
        self._observation.stage("forward", expected, train=trains, differentiated=False)
        on = f"its forward alone{_EVALUATES * evaluates}"
        self._judge(on, lambda tensors: oracle.compare_all(tensors, expected), "no_grad")
        self._stage()

    def fewer_gradients(self, whole: Differentiation) -> None:
        """A step in evaluation of which some inputs or parameters need no gradient, as where a network begins or layers
        are frozen."""
        leaves: list[int | str] = [*whole.inputs, *whole.parameters]
        if len(leaves) < 2:
            return
        needed = set(self._chance.sample(leaves, self._chance.randrange(1, len(leaves))))
        partial = Differentiation(
            outputs=whole.outputs,
            inputs=[i for i in whole.inputs if i in needed],
            parameters=[name for name in whole.parameters if name in needed],
            frozen=[name for name in whole.parameters if name not in needed],
        )
        reference, whole_step = self._drawn.reference, self._drawn.expected
        gradients = zip(leaves, reference.of_part(whole_step, "backward"), strict=True)
        expected = [*reference.of_part(whole_step, "forward"), *(e for leaf, e in gradients if leaf in needed)]
        evaluates = self._holds_in_evaluation
        trains = reference.judged_in_training and not evaluates
        self._observation.stage("step", expected, train=trains, partial=partial)
        without = ", ".join(f"input {leaf}" if isinstance(leaf, int) else leaf for leaf in leaves if leaf not in needed)
        on = f"its first data{_EVALUATES * evaluates}, where no gradient is needed of {without}"
        self._judge(on, lambda tensors: oracle.compare_all(tensors, expected), keeps=False)
        self._stage()

    def interleaved(self) -> None:
        """A step whose backward comes after another forward, and after its own outputs were overwritten where a
        backward of the reference needs none of them."""
        reference, expected = self._drawn.reference, self._drawn.expected
        overwrites = reference.lets_outputs_be_overwritten(self._drawn.data)
        overwrites = overwrites and not any(
            e.form.of_input or e.form.shares for e in reference.of_part(expected, "forward")
        )
        call, on = ("overwritten", INTERLEAVED + _OVERWRITTEN) if overwrites else ("interleaved", INTERLEAVED)
        self._observation.stage(call, expected, train=reference.judged_in_training)
        self._judge(on, self._as_first, keeps=False)
        self._stage()

    def require_unchanged_outputs(self) -> None:
        for number, seen in self._kept:
            require_unchanged(self._observation, seen, self._drawn.expected, f"call {number}", self._number - number)

    def _stage(
        self, variant: Variant | None = None, model: int = 0, *, train: bool = True, elsewhere: bool = False
    ) -> None:
        """The case's own call, or that of `variant`, which lies beside; what is random is judged in evaluation."""
        reference = self._drawn.reference
        expected = variant.expected if variant else self._drawn.expected
        on: Where = "beside" if variant else "elsewhere" if elsewhere else "own"
        self._observation.stage(
            reference.call, expected, train=train and reference.judged_in_training, on=on, model=model
        )

    def _judge(
        self, on: str, compare: Compare, mode: GradMode | None = None, *, keeps: bool = True,
        variant: Variant | None = None,
    ) -> None:  # fmt: skip
        """One call, whose results `compare` judges."""
        self._number += 1
        chosen = next(self._modes) if mode is None else mode
        with self._said(on + _MODES[chosen]):
            # On the emulator the first calls had threads forwards and at random.
            seen = self._observation.call("reverse", self._seed + self._number, mode=chosen, keeps=keeps)
            wrong = next((c for c in compare(seen.tensors) if not c.ok), None)
            if wrong:
                self._tell(seen, variant)
                raise SubmissionError(Reason.WRONG_OUTPUT, f"{self._cause(seen, variant)}{_worst(wrong)}")
        if keeps:
            self._kept.append((self._number, seen))

    @contextlib.contextmanager
    def _said(self, on: str) -> Iterator[None]:
        """A failure within it is one of a later call, and says which."""
        try:
            yield
        except SubmissionError as error:
            again = error.reason == Reason.WRONG_OUTPUT
            reason = Reason.WRONG_WHEN_CALLED_AGAIN if again else error.reason
            message = f"Its first call was right. Call {self._number}, on {on}: {error.message}"
            raise SubmissionError(reason, message) from error

    def _cause(self, seen: Seen, variant: Variant | None) -> str:
        """What a wrong result is, where it is known."""
        whole = len(seen.tensors) == len(self._first.tensors)
        if whole and all(same_bits(a, b) for a, b in zip(self._first.tensors, seen.tensors, strict=True)):
            return "it gave the first call's result. "
        if variant and self._has_other_weights(variant):
            stale = replace(variant, reference=replace(variant.reference, model=self._drawn.reference.model))
            if all(c.ok for c in stale.compare(seen.tensors)):
                return "it gave what the first weights give. "
        return ""

    def _tell(self, seen: Seen, variant: Variant | None) -> None:
        """Keep a wrong result for whoever asks why it is wrong; none of a part of a call."""
        drawn, first = self._drawn, self._first.tensors
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
        return variant.reference.model is not self._drawn.reference.model

    def _as_first(self, tensors: Sequence[torch.Tensor]) -> list[oracle.Comparison]:
        if all(same_bits(a, b) for a, b in zip(self._first.tensors, tensors, strict=True)):
            return []
        return oracle.compare_all(tensors, self._drawn.expected)

    def _rows(self, variant: Variant) -> str:
        now, before = variant.reference.case, self._drawn.reference.case
        return "" if now.shapes == before.shapes else f", with inputs of {now.shape_text} after {before.shape_text}"


_MODES: dict[GradMode, str] = {
    "": "",
    "grad": ", with gradients enabled",
    "no_grad": ", under no_grad",
    "inference": ", in inference mode",
}

_OVERWRITTEN = ", and its outputs changed in place before"

_EVALUATES = ", in evaluation"

_WAYS: dict[Reweighing, str] = {
    "load_state_dict": "by load_state_dict",
    "in_place": "in place",
    "moved": "in place where Module.to had moved them",
}


def _weights(how: Reweighing) -> str:
    return f"other weights, set {_WAYS[how]}"


def _worst(comparison: oracle.Comparison) -> str:
    at = ", ".join(map(str, comparison.worst_index))
    return (
        f"{comparison.message}; the worst, at [{at}], is {comparison.got:.9g} and should be {comparison.expected:.9g}."
    )
