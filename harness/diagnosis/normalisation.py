"""Hypotheses about references that compute means and variances, wherever they do so."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator

import torch

from harness.diagnosis.altered import WAYS, OfEps, OfStatistics, OfSums, Reductions, WithoutSum
from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import (
    Cancelled,
    EpsOutsideRoot,
    MeanKept,
    MeanTakenOff,
    OtherEps,
    PartOfRow,
    SumLeftOut,
    VarianceDivisor,
)

# What people write for eps.
USUAL_EPS = (0.0, 1e-3, 1e-5, 1e-6, 1e-8, 1e-12)

# A row's tail is what is left over of so many elements at a time.
STEPS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
WARP = 32

# A mean so many standard deviations from zero is large.
LARGE_MEAN = 8.0

# A variance by E[x^2] - m^2 is off by a few roundings of E[x^2], and more where a long sum is added one by one.
FEW_ROUNDINGS = 8.0


def mean_kept(evidence: Evidence) -> Iterator[Candidate]:
    """The mean is not taken off, or is taken off where it should not be."""

    def about_zero(rows: torch.Tensor, correction: float) -> tuple[torch.Tensor, torch.Tensor]:
        return rows.square().mean(1), torch.zeros_like(rows[:, 0])

    mode = OfStatistics(about_zero)
    outputs = evidence.outputs(mode=mode)
    if mode.used:
        yield Candidate(MeanKept(), outputs)
        return
    for position, tensor in enumerate(evidence.given[: len(evidence.data.inputs)]):
        for first in range(1, tensor.dim()) if tensor.is_floating_point() else ():
            centred = tensor.double() - tensor.double().mean(list(range(first, tensor.dim())), keepdim=True)
            yield Candidate(MeanTakenOff(), evidence.outputs(given={position: centred}))


def variance_divisor(evidence: Evidence) -> Iterator[Candidate]:
    """The variance is divided by D - 1 and not by D, or the other way round."""
    corrections: list[float] = []

    def other(rows: torch.Tensor, correction: float) -> tuple[torch.Tensor, torch.Tensor]:
        corrections.append(correction)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows of one element have no degree of freedom
            return torch.var_mean(rows, 1, correction=0 if correction else 1)

    mode = OfStatistics(other)
    outputs = evidence.outputs(mode=mode)
    if mode.used:
        divisors = ("D", "D - 1") if corrections[0] else ("D - 1", "D")
        yield Candidate(VarianceDivisor(divisor=divisors[0], expected=divisors[1]), outputs)


def eps(evidence: Evidence) -> Iterator[Candidate | None]:
    """eps is outside of the root, left out, or another number than was asked for."""
    mode = OfEps(lambda variance, eps: torch.sqrt(variance) + eps)
    outputs = evidence.outputs(mode=mode)
    if not mode.used:
        return
    yield Candidate(EpsOutsideRoot(), outputs)
    fitting = []
    for used in USUAL_EPS:
        if used != mode.eps and evidence.explains(evidence.outputs(mode=_with_eps(used))):
            fitting.append(used)
        yield None
    if fitting:
        yield Candidate(OtherEps(used=fitting[0] if len(fitting) == 1 else None, expected=mode.eps))


def _with_eps(eps: float) -> OfEps:
    return OfEps(lambda variance, _: torch.sqrt(variance + eps))


def part_of_row(evidence: Evidence) -> Iterator[Candidate]:
    """Sums, means or variances are of a part of their terms: the first ones, all but a tail, or one warp's."""
    counting = Reductions()
    evidence.outputs(mode=counting)
    for of in sorted(counting.terms, reverse=True):
        for chosen, lanes in _parts(of):
            columns = torch.tensor(chosen, device=evidence.got[0].device)
            for divided_by, way in itertools.product(sorted({of, len(chosen)}), WAYS):
                if way == "two_pass" or divided_by == of:  # a part that is divided by its own count is a row like any
                    outputs = evidence.outputs(mode=OfSums(columns, of, divided_by=divided_by, way=way))
                    found = PartOfRow(start=chosen[0], used=len(chosen), of=of, divided_by=divided_by, lanes=lanes)
                    yield Candidate(found, outputs)


def _parts(of: int) -> Iterator[tuple[list[int], int]]:
    """Columns that may be all that is used of so many, and what they repeat after."""
    firsts = {of - of % step for step in STEPS} | {n for step in STEPS for n in (step, of // step)} | {1, of - 1}
    for first in sorted((n for n in firsts if 0 < n < of), key=lambda n: (of % n != 0, -n)):
        yield list(range(first)), 0
    if of > 1:
        yield [of - 1], 0
    for block in (64, 128, 256, 512, 1024):
        if block <= of:
            yield [i for i in range(of) if i % block < WARP], block


def sum_left_out(evidence: Evidence) -> Iterator[Candidate]:
    """One of the sums or means is left out: as with zeros in its place."""
    counting = Reductions()
    evidence.outputs(mode=counting)
    for number, terms in enumerate(counting.sums):
        explanation = SumLeftOut(terms=terms, number=number + 1, count=len(counting.sums))
        yield Candidate(explanation, evidence.outputs(mode=WithoutSum(number)))


def large_mean(evidence: Evidence) -> Iterator[Candidate]:
    """Wrong where the mean is large beside the deviation: the variance is E[x^2] - m^2, which cancels."""
    if len(evidence.wrong) != 1:
        return
    position = evidence.wrong[0]
    exact = evidence.expected[position]
    variances: list[tuple[torch.Tensor, torch.Tensor]] = []

    def remembered(rows: torch.Tensor, correction: float) -> tuple[torch.Tensor, torch.Tensor]:
        variances.append(torch.var_mean(rows, 1, correction=correction))
        return torch.full_like(variances[-1][0], math.inf), variances[-1][1]

    base = evidence.outputs(mode=OfStatistics(remembered))[position]
    roots = OfEps(lambda variance, eps: torch.sqrt(variance + eps))
    evidence.outputs(mode=roots)
    if len(variances) != 1 or len(roots.below) != 1 or exact.values.numel() % variances[0][0].numel():
        return
    variance, mean = variances[0]
    below, count = roots.below[0].flatten(), variance.numel()
    got, wanted, zero = (t.double().reshape(count, -1) for t in (evidence.got[position], exact.values, base))
    ratio = ((got - zero) * (wanted - zero)).sum(1) / (wanted - zero).square().sum(1)
    limit = _most_cancelled(variance, mean, wanted.shape[1])
    finite = got.isfinite().all(1)
    left = (got - zero - ratio[:, None] * (wanted - zero)).abs().amax(1)
    off = (below / ratio.square() - below).abs()
    fits = (left <= exact.tolerance * ratio.abs().clamp(min=1)) & (ratio > 0) & (off <= limit)
    large = mean.abs() > LARGE_MEAN * variance.sqrt()
    wrong = ~((got - wanted).abs() <= exact.tolerance).all(1)
    if bool((torch.where(finite, fits, below <= limit) & large)[wrong].all()):
        worst = float((mean.abs() / variance.sqrt())[wrong].max())
        yield Candidate(Cancelled(mean_over_deviation=worst if math.isfinite(worst) else None))


def _most_cancelled(variance: torch.Tensor, mean: torch.Tensor, terms: int) -> torch.Tensor:
    """How far E[x^2] - m^2 in float32 may be off, by row."""
    roundings = FEW_ROUNDINGS + math.sqrt(terms)
    return roundings * torch.finfo(torch.float32).eps * (variance + mean.square())
