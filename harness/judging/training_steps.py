"""Training steps after a case's first: its forward alone, fewer gradients, a backward that comes late and twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from harness import oracle
from harness.judging.later_calls import EVALUATES, LaterCalls
from harness.oracle.data import Data
from harness.oracle.reference import Reference
from harness.protocol.wire import Differentiation

# What a call is on whose backward comes after another forward.
INTERLEAVED = "its first data, with another forward between its forward and its backward, which came twice"
_OVERWRITTEN = ", and its outputs changed in place before"


def check(calls: LaterCalls, whole: Differentiation) -> None:
    """Make each of them, of a case whose step differentiates the `whole`. Raises SubmissionError."""
    _forward_alone(calls)
    _fewer_gradients(calls, whole)
    _interleaved(calls)


def _forward_alone(calls: LaterCalls) -> None:
    """The outputs of a training step without its backward."""
    reference = calls.drawn.reference
    expected = reference.of_part(calls.drawn.expected, "forward")
    evaluates = calls.holds_in_evaluation
    trains = reference.judged_in_training and not evaluates
    calls.observation.stage("forward", expected, train=trains, differentiated=False)
    on = f"its forward alone{EVALUATES * evaluates}"
    calls.judge(on, lambda tensors: oracle.compare_all(tensors, expected), "no_grad")
    calls.stage()


@dataclass(frozen=True)
class FewerGradients:
    """A step of which some inputs or parameters need no gradient, as where a network begins or layers are frozen, and
    whose outputs carry one all the same."""

    partial: Differentiation
    places: list[int]
    """Which of the whole step's gradients are left, in its order."""
    on: str
    """Words for it."""

    def of(self, reference: Reference, whole_step: Sequence[oracle.Expected]) -> list[oracle.Expected]:
        """What of the whole step's outputs and gradients must come out."""
        gradients = reference.of_part(whole_step, "backward")
        return [*reference.of_part(whole_step, "forward"), *(gradients[place] for place in self.places)]


def fewer_gradients(
    reference: Reference, data: Data, whole: Differentiation, chance: random.Random
) -> FewerGradients | None:
    """Some of the `whole` step's gradients, drawn by chance; None where it needs all of them."""
    leaves: list[int | str] = [*whole.inputs, *whole.parameters]
    if len(leaves) < 2:
        return None
    needed = set(chance.sample(leaves, chance.randrange(1, len(leaves))))
    while not reference.leads_to_all_outputs(needed, data):
        needed.add(chance.choice([leaf for leaf in leaves if leaf not in needed]))
    if len(needed) == len(leaves):
        return None
    partial = Differentiation(
        outputs=whole.outputs,
        inputs=[i for i in whole.inputs if i in needed],
        parameters=[name for name in whole.parameters if name in needed],
        frozen=[name for name in whole.parameters if name not in needed],
    )
    without = ", ".join(f"input {leaf}" if isinstance(leaf, int) else leaf for leaf in leaves if leaf not in needed)
    places = [place for place, leaf in enumerate(leaves) if leaf in needed]
    return FewerGradients(partial, places, f"where no gradient is needed of {without}")


def _fewer_gradients(calls: LaterCalls, whole: Differentiation) -> None:
    """A step in evaluation with fewer gradients."""
    reference = calls.drawn.reference
    fewer = fewer_gradients(reference, calls.drawn.data, whole, calls.chance)
    if not fewer:
        return
    expected = fewer.of(reference, calls.drawn.expected)
    evaluates = calls.holds_in_evaluation
    trains = reference.judged_in_training and not evaluates
    calls.observation.stage("step", expected, train=trains, partial=fewer.partial)
    on = f"its first data{EVALUATES * evaluates}, {fewer.on}"
    calls.judge(on, lambda tensors: oracle.compare_all(tensors, expected), keeps=False)
    calls.stage()


def _interleaved(calls: LaterCalls) -> None:
    """A step whose backward comes after another forward, and after its own outputs were overwritten where a
    backward of the reference needs none of them."""
    reference, expected = calls.drawn.reference, calls.drawn.expected
    apart = not any(e.form.of_input or e.form.shares for e in reference.of_part(expected, "forward"))
    overwrites = apart and reference.lets_outputs_be_overwritten(calls.drawn.data)
    call, on = ("overwritten", INTERLEAVED + _OVERWRITTEN) if overwrites else ("interleaved", INTERLEAVED)
    calls.observation.stage(call, expected, train=reference.judged_in_training)
    calls.judge(on, calls.as_first, keeps=False)
    calls.stage()
