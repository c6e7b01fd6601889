"""Why a result is wrong: hypotheses, tried one after the other on a call that went wrong. It knows no worker.

The first that gives what came out, to the tolerance, is the explanation. It decides nothing: the verdict is there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from harness.diagnosis import (
    activations,
    calls,
    maxima,
    memory,
    normalisation,
    operands,
    regions,
    rounding,
    scale,
    steps,
)
from harness.diagnosis.evidence import Candidate, Evidence, OnWrong
from harness.diagnosis.failing import failing_cases
from harness.explanations import Explanation, Unexplained

__all__ = [
    "GENERIC",
    "HYPOTHESES",
    "LIMIT_S",
    "OF_CALLS",
    "Candidate",
    "Evidence",
    "OnWrong",
    "explain",
    "failing_cases",
    "find",
]

Hypothesis = Callable[[Evidence], Iterator[Candidate | None]]
"""Gives candidates, and None between where it takes long, so that somebody looks at the time."""

# All that an evaluation may spend on why.
LIMIT_S = 2.0

# What gives exact numbers comes first, and what fits more loosely last.
HYPOTHESES: tuple[Hypothesis, ...] = (
    calls.earlier_call,
    calls.earlier_parameter,
    maxima.maxima_from_zero,
    scale.constant,
    operands.input_returned,
    operands.parameter_left_out,
    operands.parameters_swapped,
    operands.parameter_negated,
    operands.input_left_out,
    operands.inputs_swapped,
    operands.results_swapped,
    memory.input_read_as_contiguous,
    memory.input_read_as_int32,
    memory.read_as_transposed,
    memory.displaced,
    normalisation.mean_kept,
    normalisation.variance_divisor,
    normalisation.eps,
    activations.gelu_form,
    activations.activation_left_out,
    rounding.inputs_rounded,
    scale.multiple,
    scale.offset,
    steps.other_dimension,
    steps.other_step,
    steps.step_left_out,
    steps.gates_swapped,
    normalisation.sum_left_out,
    normalisation.part_of_row,
    calls.kept_from_before,
    calls.not_deterministic,
    scale.unwritten,
    regions.region,
    regions.border,
    normalisation.large_mean,
    rounding.output_rounded,
    rounding.sums_rounded,
    rounding.steps_rounded,
)

# What a second call on the same data is asked for.
OF_CALLS: tuple[Hypothesis, ...] = (calls.kept_from_before, calls.not_deterministic)

# Those that ask nothing of a reference but that it can be run. Others look for means, variances, activations, maxima or
# other steps in it.
_LOOKING_FOR_STEPS = ("normalisation", "activations", "maxima", "steps")
GENERIC = frozenset(h for h in HYPOTHESES if not h.__module__.endswith(_LOOKING_FOR_STEPS))

# What is tried on whole numbers and booleans, too.
_FOR_ANY_DTYPE = {
    calls.earlier_call,
    scale.constant,
    operands.input_returned,
    memory.input_read_as_int32,
    memory.read_as_transposed,
    maxima.maxima_from_zero,
    steps.other_dimension,
    steps.other_step,
    calls.kept_from_before,
    calls.not_deterministic,
    regions.region,
    regions.border,
}

# What neither runs the reference nor makes results to compare with, and so takes no time worth a limit.
_RUNS_NOTHING = {
    scale.constant,
    scale.unwritten,
    operands.input_returned,
    calls.kept_from_before,
    calls.not_deterministic,
    regions.region,
    regions.border,
    rounding.output_rounded,
    rounding.sums_rounded,
    rounding.steps_rounded,
}

# Of more elements the reference takes too long.
MOST_ELEMENTS = 1 << 20


def find(evidence: Evidence, ends_s: float, hypotheses: Sequence[Hypothesis] = HYPOTHESES) -> Explanation:
    """The first hypothesis that explains `evidence`. When the monotonic clock shows `ends_s`, or where there is too
    much to compute, only those are tried that do not run the reference."""
    for hypothesis in hypotheses:
        if found := _tried(hypothesis, evidence, ends_s):
            return found
    return Unexplained()


def explain(evidence: Evidence, ends_s: float, hypotheses: Sequence[Hypothesis] = HYPOTHESES) -> Explanation:
    """As `find`; a hypothesis that stumbles over something explains nothing."""
    with _one_thread():
        for hypothesis in hypotheses:
            with contextlib.suppress(Exception):  # the verdict stands without an explanation
                found = find(evidence, ends_s, (hypothesis,))
                if not isinstance(found, Unexplained):
                    return found
    return Unexplained()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Of torch's, on a CPU: hypotheses run the reference a hundred times on little data. On a busy machine several
    threads wait for each other, 30 ms a run in place of 1 ms."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _tried(hypothesis: Hypothesis, evidence: Evidence, ends_s: float) -> Explanation | None:
    """What a hypothesis says; None where it explains nothing, or there is no time."""
    if not evidence.wrong or not (evidence.is_rounded or hypothesis in _FOR_ANY_DTYPE):
        return None
    if hypothesis not in _RUNS_NOTHING and (time.monotonic() > ends_s or evidence.elements > MOST_ELEMENTS):
        return None
    for candidate in hypothesis(evidence):
        if candidate and (candidate.outputs is None or evidence.explains(candidate.outputs)):
            return candidate.explanation
        if time.monotonic() > ends_s:
            return None
    return None
