"""Cases whose outputs are random in training: what was kept, what was dropped, and that a seed repeats it.

In evaluation such a problem is like any other. In training an element of a random output is 0, or what it
is in evaluation over 1 - p; which of the two has to be the same in the backward, and independent of
everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from harness import oracle
from harness.errors import SubmissionError
from harness.judging.observe import Observation, Seen, same_bits
from harness.oracle import dropout
from harness.oracle.draw import Drawn
from harness.reasons import Reason
from harness.settings import sub_seed

# So many elements that look dropped and may be 0 by themselves are tried, each with gradients computed anew.
MOST_DOUBTFUL = 8


def check(observation: Observation, seed: int, false_alarm_rate: float) -> None:
    """Judge calls in training mode. Raises SubmissionError."""
    drawn = observation.drawn.in_training()
    observation.stage(drawn.call, drawn.expected, train=True)
    seeds = [sub_seed(seed, "first") % 2**31, sub_seed(seed, "second") % 2**31]
    first = observation.call("forward", seed, seeds[0])
    again = observation.call("random", seed + 1, seeds[0])
    if not all(same_bits(a, b) for a, b in zip(first.tensors, again.tensors, strict=True)):
        raise SubmissionError(
            Reason.SEED_NOT_FOLLOWED,
            "Two calls after torch.manual_seed with the same seed gave different results. Draw the seed of a kernel's "
            "random numbers from torch's generator, and let each element's number depend on its place alone.",
        )
    calls = [first, observation.call("forward", seed, seeds[1]), observation.call("forward", seed)]
    for seen in calls:
        _compare(drawn, seen)
    for position, p in drawn.random.items():
        masks = [(seen.tensors[position] == 0).cpu().numpy() for seen in calls]
        text = masks[0].size and dropout.unlikely(masks, p, false_alarm_rate / len(drawn.random))
        if text:
            raise SubmissionError(Reason.NOT_RANDOM, f"The mask of {drawn.expected[position].form.name}: {text}.")


def _compare(drawn: Drawn, seen: Seen) -> None:
    """Each tensor of one call: outputs against what is kept, gradients against those of the mask that outputs show.

    What is kept may be 0 as well, once in some hundred million elements, and then looks dropped: where gradients
    belong to no other mask, they may belong to one in which a single such element was kept."""
    shown = {position: seen.tensors[position] != 0 for position in drawn.random}
    failure = _failure(drawn, seen, shown)
    for position, kept in shown.items():
        wanted = drawn.expected[position]
        doubtful = ~kept & (wanted.values.abs() <= wanted.tolerance)
        for place in doubtful.reshape(-1).nonzero()[:MOST_DOUBTFUL, 0].tolist():
            if failure is None or failure.reason != Reason.WRONG_GRADIENT:
                break
            other = kept.clone(memory_format=torch.contiguous_format)
            other.view(-1)[place] = True
            if _failure(drawn, seen, {**shown, position: other}) is None:
                return
    if failure:
        raise failure


def _failure(drawn: Drawn, seen: Seen, kept: Mapping[int, torch.Tensor]) -> SubmissionError | None:
    """What is wrong with a call that kept these elements of its random outputs."""
    masked = [
        upstream * _factor(drawn, kept, position)
        for position, upstream in zip(_differentiated(drawn), drawn.upstream, strict=True)
    ]
    expected = replace(drawn, upstream=tuple(masked)).expected_after_masking() if masked else drawn.expected
    for tensor, wanted in zip(seen.tensors, expected, strict=True):
        comparison = oracle.compare(tensor, wanted)
        if comparison.ok:
            continue
        at = ", ".join(map(str, comparison.worst_index))
        what = "" if wanted.form.dropout else ", with the mask that the output shows"
        return SubmissionError(
            Reason.WRONG_OUTPUT if wanted.form.dropout else Reason.WRONG_GRADIENT,
            f"In training{what}: {comparison.message}; the worst, at [{at}], is {comparison.got:.9g} and should be "
            f"{comparison.expected:.9g}{' or 0' if wanted.form.dropout else ''}.",
        )
    return None


def _differentiated(drawn: Drawn) -> list[int]:
    return drawn.differentiation.outputs if drawn.differentiation else []


def _factor(drawn: Drawn, kept: Mapping[int, torch.Tensor], position: int) -> torch.Tensor | float:
    """What dropout multiplied an output by, element by element."""
    p = drawn.random.get(position)
    if p is None:
        return 1.0
    factor = kept[position].double()
    return factor / (1 - p) if p < 1 else factor
