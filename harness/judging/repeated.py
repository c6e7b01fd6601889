"""Right more than once: calls after the first, on other data, weights, rows and models, in an order that nobody knows.

What a submission keeps from call to call shows here: a result, packed weights, a size, a counter that is not reset, an
output buffer that it uses again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

from harness.diagnosis import OnWrong
from harness.errors import SubmissionError, UsageError
from harness.judging import training_steps
from harness.judging.later_calls import EVALUATES, LaterCalls
from harness.judging.observe import Observation, Seen
from harness.oracle.draw import Drawn
from harness.oracle.further import Further, Variant
from harness.protocol.wire import GradMode, Reweighing
from harness.reasons import Reason
from harness.settings import sub_seed

# Where calls are slow each case gets some of the steps, and over all cases each step comes at least so often.
DEALT_TIMES = 5

_WAYS: dict[Reweighing, str] = {
    "load_state_dict": "by load_state_dict",
    "in_place": "in place",
    "moved": "in place where Module.to had moved them",
}


def _data(calls: LaterCalls, further: Further) -> None:
    """Other data in the same memory, then the first in other memory, where they may lie otherwise. Raises UsageError
    for a reference whose outputs have other shapes on other data: no form is known of what a submission has to
    return."""
    variant = further.inputs
    shapes, others = ([e.form.shape for e in of] for of in (calls.drawn.expected, variant.expected))
    if shapes != others:
        raise UsageError(
            f"The reference's outputs have the shapes {shapes} in case '{calls.drawn.reference.case.name}', and "
            f"{others} on other data of the same form. Outputs whose shape depends on values cannot be judged."
        )
    calls.observation.rewrite(variant.data)
    calls.judge("other data in the same memory", variant.compare, variant=variant)
    for number, elsewhere in enumerate(further.elsewhere):
        calls.stage(elsewhere, on=number)  # an address that was kept leads to the other data
        compare = calls.as_first if elsewhere.data is calls.drawn.data else elsewhere.compare
        on = f"its first data again, in other memory{calls.lying(elsewhere)}"
        calls.judge(on, compare, keeps=number == 0, variant=elsewhere)
    calls.observation.rewrite(calls.drawn.data)
    calls.stage()


def _weights(calls: LaterCalls, further: Further) -> None:
    """Other weights on other inputs, then the first weights again, each set in another way. They are set back in
    evaluation, in which the model has just been called: who packs weights for it packs them anew."""
    there, back = calls.chance.sample(list(_WAYS), 2)
    variant = further.weights
    others = f"{_other_weights(variant)}, set {_WAYS[there]}"
    with calls.said(others):
        calls.observation.reweigh(there, beside=True)
    calls.stage(variant)
    on = f"{others}{calls.rows(variant)}"
    calls.judge(on, variant.compare, variant=variant)
    differentiated = bool(calls.drawn.reference.differentiation)
    evaluates = not differentiated and calls.holds_in_evaluation and variant.holds_in_evaluation
    if evaluates:
        calls.stage(variant, train=False)
        calls.judge(on + EVALUATES, variant.compare, variant=variant)
    calls.stage(train=not evaluates)
    first = f"its first weights again, set {_WAYS[back]}"
    with calls.said(first):
        calls.observation.reweigh(back, beside=False)
    calls.judge(f"{first}{EVALUATES * evaluates}", calls.as_first)
    calls.stage()


def _models(calls: LaterCalls, further: Further) -> None:
    """A second model on other weights, then the first again; and once more, when one has been built with another
    case's arguments of the constructor. The first model's call after the second's is in evaluation; whether the
    second's is as well, nobody knows."""
    variant = further.weights
    with calls.said("a second model beside the first"):
        number = calls.observation.construct_beside()
    differentiated = bool(calls.drawn.reference.differentiation)
    evaluates = not differentiated and calls.chance.choice([True, True, False]) and variant.holds_in_evaluation
    calls.stage(variant, number, train=not evaluates)
    # What a model keeps from inference mode cannot be used outside of it: a program calls it in one of the two.
    mode: GradMode = "" if differentiated else "inference" if variant.runs_in_inference_mode else "no_grad"
    of = f"a second model with {_other_weights(variant)}{EVALUATES * evaluates}{calls.rows(variant)}"
    calls.judge(of, variant.compare, mode, variant=variant)
    evaluates = not differentiated and calls.holds_in_evaluation
    calls.stage(train=not evaluates)
    calls.judge(f"the first model{EVALUATES * evaluates}, after a second was called", calls.as_first)
    calls.stage()
    if further.init is not None:
        _build_to_stand_by(calls, further.init)
        calls.judge("the first model, after one was built with other constructor arguments", calls.as_first)


def _build_to_stand_by(calls: LaterCalls, init: Sequence[Any]) -> None:
    """A model with another case's arguments. Whether the constructor takes those is that case's to say, and it may
    not be among those that are judged."""
    try:
        with calls.said("a model with other constructor arguments beside the first"):
            calls.observation.construct_to_stand_by(init)
    except SubmissionError as error:
        if error.reason != Reason.LOAD_FAILED:
            raise


def _other_weights(variant: Variant) -> str:
    return f"other weights{', zeros among them' * variant.zeros}"


# What follows the first call, by name.
STEPS: dict[str, Callable[[LaterCalls, Further], None]] = {"data": _data, "weights": _weights, "models": _models}


def deal(cases: Sequence[str], seed: int) -> dict[str, tuple[str, ...]]:
    """Which of STEPS each case gets where it cannot get all: each step as often as the others, which is a secret."""
    chance = random.Random(sub_seed(seed, "steps"))
    names, steps = chance.sample(cases, len(cases)), chance.sample(list(STEPS), len(STEPS))
    each = min(len(STEPS), -(-DEALT_TIMES * len(STEPS) // max(len(cases), 1)))
    endless = itertools.cycle(steps)
    return {name: tuple(next(endless) for _ in range(each)) for name in names}


def check(
    observation: Observation, drawn: Drawn, first: Seen, seed: int, steps: Sequence[str], on_wrong: OnWrong
) -> None:
    """Call what was called once and was right, `first`, in further ways. `observation` is staged for the case's own
    call, whose outputs the first call kept; its own weights and data are there again at the end.

    `on_wrong` is told of a wrong result. Raises SubmissionError, with words for the step that failed."""
    calls = LaterCalls(observation, drawn, first, seed, on_wrong)
    if drawn.further is None:
        calls.judge("its first data again", calls.as_first, keeps=False)
        return
    for step in random.Random(sub_seed(seed, "order")).sample(steps, len(steps)):
        STEPS[step](calls, drawn.further)
    if drawn.reference.differentiation:
        training_steps.check(calls, drawn.reference.differentiation)
    calls.require_unchanged_outputs()
