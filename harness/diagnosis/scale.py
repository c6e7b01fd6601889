"""Hypotheses that compare a result with what it should be, number by number, whatever the problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import Constant, Multiple, Offset, Unwritten

# With fewer, one number fits by chance.
FEWEST_ELEMENTS = 8


def constant(evidence: Evidence) -> Iterator[Candidate]:
    """Every element is the same number, as zeros are where nothing was computed."""
    for position in evidence.wrong:
        got = evidence.got[position].double()
        first = got.flatten()[0]
        if got.numel() < FEWEST_ELEMENTS or not first.isfinite() or not bool((got == first).all()):
            return
    value = float(evidence.got[evidence.wrong[0]].flatten()[0])
    yield Candidate(Constant(value=value))


def unwritten(evidence: Evidence) -> Iterator[Candidate]:
    """Every element is NaN, as memory is that nothing was written to."""
    got = [evidence.got[position] for position in evidence.wrong]
    if all(tensor.numel() >= FEWEST_ELEMENTS and bool(tensor.isnan().all()) for tensor in got):
        yield Candidate(Unwritten())


def multiple(evidence: Evidence) -> Iterator[Candidate]:
    """The result is a constant multiple of the right one, or is so before a parameter is added."""
    exact = [e.values for e in evidence.expected]
    yield from _multiple(evidence, exact, [torch.zeros_like(e) for e in exact], "")
    for name, value in evidence.parameters.items():
        without = evidence.outputs(parameters={name: torch.zeros_like(value)})
        added = [e - w for e, w in zip(exact, without, strict=True)]
        yield from _multiple(evidence, without, added, name)


def _multiple(
    evidence: Evidence, scaled: Sequence[torch.Tensor], added: Sequence[torch.Tensor], before: str
) -> Iterator[Candidate]:
    factors = [_factor(evidence.got[i].double() - added[i], scaled[i]) for i in evidence.wrong]
    if all(factor is not None for factor in factors):
        factor = factors[0]
        assert factor is not None
        outputs = [s * factor + a for s, a in zip(scaled, added, strict=True)]
        yield Candidate(Multiple(factor=factor, before=before), outputs)


def _factor(got: torch.Tensor, exact: torch.Tensor) -> float | None:
    """By least squares over what is finite; None where there is too little to tell."""
    finite = got.isfinite() & exact.isfinite()
    got, exact = got[finite], exact[finite]
    square = float(exact.square().sum()) if exact.numel() >= FEWEST_ELEMENTS else 0.0
    if not square or bool((exact == exact[0]).all()):
        return None
    return float((got * exact).sum()) / square


def offset(evidence: Evidence) -> Iterator[Candidate]:
    """The same amount was added to every element."""
    exact = [e.values for e in evidence.expected]
    (first, *others) = evidence.wrong
    difference = evidence.got[first].double() - exact[first]
    difference = difference[difference.isfinite()]
    if not others and difference.numel() >= FEWEST_ELEMENTS:
        amount = float(difference.mean())
        yield Candidate(Offset(amount=amount), [e + amount for e in exact])
