"""Cases whose outputs are random in training: what was kept, what was dropped, and that a seed repeats it.

In evaluation such a problem is like any other. In training an element of a random output is 0, or what it
is in evaluation over 1 - p; which of the two has to be the same in the backward, and independent of
everything else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from harness import oracle
from harness.errors import SubmissionError
from harness.judging.later_calls import require_unchanged
from harness.judging.observe import Observation, Seen, same_bits
from harness.judging.training_steps import INTERLEAVED, fewer_gradients
from harness.oracle import dropout
from harness.oracle.data import Data
from harness.oracle.draw import Drawn
from harness.oracle.further import Further, Variant
from harness.oracle.reference import Reference
from harness.protocol.wire import Differentiation
from harness.reasons import Reason
from harness.settings import sub_seed

# Try at most so many elements that look dropped and may be 0 by themselves; each needs gradients computed anew.
MOST_DOUBTFUL = 8


def check(observation: Observation, drawn: Drawn, seed: int, false_alarm_rate: float) -> None:
    """Judge calls in training mode, the last of them on other data and on other weights. Raises SubmissionError."""
    reference = observation.reference
    expected = reference.in_training(drawn.expected)
    observation.stage(reference.call, expected, train=True)
    before = observation.calls
    calls = _independent_calls(observation, seed, keeps=drawn.further is not None)
    judge = _Masks(reference, observation.data, expected)
    for seen in calls:
        judge.compare(seen)
    for position, p in reference.random.items():
        kept = expected[position].values
        chance = torch.Generator(kept.device).manual_seed(sub_seed(seed, "hidden", position))
        masks = [dropout.dropped(seen.tensors[position], kept, p, chance).cpu().numpy() for seen in calls]
        text = masks[0].size and dropout.unlikely(masks, p, false_alarm_rate / len(reference.random), seed)
        if text:
            raise SubmissionError(Reason.NOT_RANDOM, f"The mask of {expected[position].form.name}: {text}.")
    if drawn.further:
        _check_without_gradients(observation, expected, calls[0], seed)
        if reference.differentiation:
            _check_interleaved(observation, judge, expected, seed + 4)
            _check_fewer_gradients(observation, judge, reference.differentiation, seed + 6)
        _check_further(observation, drawn.further, seed)
        later = observation.calls - before - 1
        require_unchanged(observation, calls[0], expected, "the first call in training", later)


def _check_without_gradients(
    observation: Observation, expected: Sequence[oracle.Expected], first: Seen, seed: int
) -> None:
    """A call under no_grad, from the first call's seed: it drops the same, as torch.utils.checkpoint needs it, which
    computes a forward once without gradients and once with them. Raises SubmissionError."""
    reference = observation.reference
    outputs = reference.of_part(expected, "forward")
    observation.stage("forward", outputs, train=True, differentiated=False)
    seen = observation.call("reverse", seed + 5, _first_seed(seed), mode="no_grad")
    for tensor, wanted in zip(seen.tensors, outputs, strict=True):
        if not (comparison := oracle.compare(tensor, wanted)).ok:
            error = _wrong(comparison, wanted)
            raise SubmissionError(error.reason, f"{error.message} It was on a call under no_grad.")
    for position in reference.random:
        shown = outputs[position].values.abs() > outputs[position].tolerance  # others may be 0 by themselves
        if ((seen.tensors[position] == 0) != (first.tensors[position] == 0))[shown].any():
            raise SubmissionError(
                Reason.SEED_NOT_FOLLOWED,
                "A call under no_grad dropped other elements than one with gradients from the same seed. Checkpointing "
                "computes a forward in both ways: have the mask hang on the seed alone.",
            )
    observation.stage(reference.call, expected, train=True)


def _check_fewer_gradients(observation: Observation, judge: _Masks, whole: Differentiation, seed: int) -> None:
    """A step of which not all gradients are needed. Raises SubmissionError."""
    reference = observation.reference
    fewer = fewer_gradients(reference, observation.data, whole, random.Random(sub_seed(seed, "fewer")))
    if not fewer:
        return
    observation.stage("step", fewer.of(reference, judge.expected), train=True, partial=fewer.partial)
    try:
        replace(judge, places=fewer.places).compare(observation.call("forward", seed))
    except SubmissionError as error:
        raise SubmissionError(error.reason, f"{error.message} It was on a step {fewer.on}.") from error
    observation.stage(reference.call, judge.expected, train=True)


def _check_interleaved(observation: Observation, judge: _Masks, expected: Sequence[oracle.Expected], seed: int) -> None:
    """A step whose backward comes after another forward, with a mask of its own. Raises SubmissionError."""
    observation.stage("interleaved", expected, train=True)
    try:
        judge.compare(observation.call("forward", seed))
    except SubmissionError as error:
        raise SubmissionError(error.reason, f"{error.message} It was on {INTERLEAVED}.") from error
    observation.stage(observation.reference.call, expected, train=True)


def _check_further(observation: Observation, further: Further, seed: int) -> None:
    """Other data in the same memory, then other weights on other data. Raises SubmissionError."""
    observation.rewrite(further.inputs.data)
    _judge(observation, further.inputs, seed + 2, "other data in the same memory")
    observation.stage(
        observation.reference.call,
        further.weights.reference.in_training(further.weights.expected),
        train=True,
        on="beside",
    )
    observation.reweigh("in_place", beside=True)
    _judge(observation, further.weights, seed + 3, "other weights")


def _judge(observation: Observation, variant: Variant, seed: int, on: str) -> None:
    """A call in training on what is staged, which is `variant`'s. Raises SubmissionError."""
    try:
        seen = observation.call("reverse", seed)
        try:
            _Masks(variant.reference, variant.data, variant.reference.in_training(variant.expected)).compare(seen)
        except SubmissionError:  # perhaps for the smaller tolerance
            whole = variant.reference.in_training(variant.expected_in_full)
            _Masks(variant.reference, variant.data, whole).compare(seen)
    except SubmissionError as error:
        again = error.reason in (Reason.WRONG_OUTPUT, Reason.WRONG_GRADIENT)
        reason = Reason.WRONG_WHEN_CALLED_AGAIN if again else error.reason
        raise SubmissionError(reason, f"In training its first calls were right. On {on}: {error.message}") from error


def _independent_calls(observation: Observation, seed: int, *, keeps: bool) -> list[Seen]:
    """Calls whose masks must have nothing in common; the first `keeps` its outputs. Raises SubmissionError when a seed,
    or the generator's state, does not repeat its own."""
    seeds = [_first_seed(seed), sub_seed(seed, "second") % 2**31]
    first = observation.call("forward", seed, seeds[0], keeps=keeps)
    again = observation.call("random", seed + 1, seeds[0])
    _require_same(
        first,
        again,
        "Two calls after torch.manual_seed with the same seed gave different results. Draw the seed of a kernel's "
        "random numbers from torch's generator, and let each element's number depend on its place alone.",
    )
    second = observation.call("forward", seed, seeds[1])
    third = observation.call("forward", seed, random_state="kept")
    _require_same(
        third,
        observation.call("random", seed + 1, random_state="set_back"),
        "Two calls from the same state of torch's generator, set by torch.set_rng_state as checkpointing does, gave "
        "different results. Take a kernel's seed and offset from that generator in each call.",
    )
    return [first, second, third]


def _first_seed(seed: int) -> int:
    """torch's, before the first call."""
    return sub_seed(seed, "first") % 2**31


def _require_same(first: Seen, again: Seen, otherwise: str) -> None:
    """Raises SubmissionError where results are not the same to the bit."""
    if not all(same_bits(a, b) for a, b in zip(first.tensors, again.tensors, strict=True)):
        raise SubmissionError(Reason.SEED_NOT_FOLLOWED, otherwise)


@dataclass(frozen=True)
class _Masks:
    """Compares calls in training with what belongs to the masks that their outputs show."""

    reference: Reference
    data: Data
    expected: list[oracle.Expected]
    """In training."""
    places: Sequence[int] | None = None
    """Which of the gradients a call gives; None for all."""

    def compare(self, seen: Seen) -> None:
        """Raises SubmissionError for an output that is neither kept nor dropped, or gradients of another mask.

        A kept element may be 0 as well, once in some hundred million, and then looks dropped: gradients may also be
        those of a mask in which a single such element was kept."""
        shown = {position: seen.tensors[position] != 0 for position in self.reference.random}
        failure = self._failure(seen, shown)
        for position, kept in shown.items():
            for place in self._doubtful(position, kept):
                if failure is None or failure.reason != Reason.WRONG_GRADIENT:
                    break
                other = kept.clone(memory_format=torch.contiguous_format)
                other.view(-1)[place] = True
                if self._failure(seen, {**shown, position: other}) is None:
                    return
        if failure:
            raise failure

    def _doubtful(self, position: int, kept: torch.Tensor) -> list[int]:
        """Elements that look dropped and may be 0 by themselves: those that are nearest to 0 in float64. In 16 bits a
        tolerance may hold hundreds that were dropped."""
        wanted = self.expected[position]
        distance = wanted.values.abs().masked_fill(kept, torch.inf).reshape(-1)
        nearest = distance.topk(min(MOST_DOUBTFUL, distance.numel()), largest=False)
        return nearest.indices[nearest.values <= wanted.tolerance].tolist()

    def _failure(self, seen: Seen, kept: Mapping[int, torch.Tensor]) -> SubmissionError | None:
        """What is wrong with a call that kept these elements of its random outputs."""
        failure = None
        # What is within the tolerance of a single perturbation, which costs a fraction, is within the whole one.
        for draws in (1, oracle.MOST_DRAWS):
            compared = zip(seen.tensors, self._expected_with(kept, draws), strict=True)
            wrong = ((oracle.compare(tensor, wanted), wanted) for tensor, wanted in compared)
            failure = next((_wrong(comparison, wanted) for comparison, wanted in wrong if not comparison.ok), None)
            if failure is None:
                break
        return failure

    def _expected_with(self, kept: Mapping[int, torch.Tensor], draws: int) -> list[oracle.Expected]:
        """Outputs, and the gradients that belong to a mask, in float64, with the tolerance of at most `draws`
        perturbations."""
        differentiation = self.reference.differentiation
        if not differentiation:
            return self.expected
        masked = [
            upstream * self._factor(kept, position)
            for position, upstream in zip(differentiation.outputs, self.data.upstream, strict=True)
        ]
        laid_out = Data(self.data.inputs, tuple(masked)).laid_out(self.reference.case)
        forms = [expected.form for expected in self.reference.of_part(self.expected, "backward")]
        gradients = self.reference.expect_in_training("backward", laid_out, 0, forms, draws)
        given = gradients if self.places is None else [gradients[place] for place in self.places]
        return [*self.reference.of_part(self.expected, "forward"), *given]

    def _factor(self, kept: Mapping[int, torch.Tensor], position: int) -> torch.Tensor | float:
        """What dropout multiplied an output by, element by element."""
        p = self.reference.random.get(position)
        if p is None:
            return 1.0
        factor = kept[position].double()
        return factor / (1 - p) if p < 1 else factor


def _wrong(comparison: oracle.Comparison, wanted: oracle.Expected) -> SubmissionError:
    is_random = bool(wanted.form.dropout)
    at = ", ".join(map(str, comparison.worst_index))
    what = "" if is_random else ", with the mask that the output shows"
    return SubmissionError(
        Reason.WRONG_OUTPUT if is_random else Reason.WRONG_GRADIENT,
        f"In training{what}: {comparison.message}; the worst, at [{at}], is {comparison.got:.9g} and should be "
        f"{comparison.expected:.9g}{' or 0' if is_random else ''}.",
    )
