"""Hypotheses about numbers of fewer digits than the case's."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import Rounded

NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16}

# Steps between may round so many times what one rounding is.
STEPS_IN_EPS = 32.0

# TF32 keeps ten binary digits behind the first: of a float32, all but the last 13.
_TF32_DROPPED = 13


def inputs_rounded(evidence: Evidence) -> Iterator[Candidate]:
    """Inputs, of float32, were rounded to 16 bits or to TF32."""
    given = {i: t for i, t in enumerate(evidence.given) if t.dtype is torch.float32}
    if not given:
        return
    for name in (*NARROW, "TF32"):
        rounded = {i: _rounded(t, name) for i, t in given.items()}
        yield Candidate(Rounded(what="inputs", dtype=name), evidence.outputs(given=rounded))
        values = {n: _rounded(p, name) for n, p in evidence.parameters.items() if p.dtype is torch.float32}
        outputs = evidence.outputs(given=rounded, parameters=values)
        yield Candidate(Rounded(what="inputs", dtype=name), outputs)


def output_rounded(evidence: Evidence) -> Iterator[Candidate]:
    """The result, of float32, was rounded to 16 bits on its way."""
    for name, dtype in NARROW.items():
        if all(_holds(evidence, position, dtype) for position in evidence.wrong):
            yield Candidate(Rounded(what="output", dtype=name))


def sums_rounded(evidence: Evidence) -> Iterator[Candidate]:
    """The result, of float32, holds numbers of 16 bits and is off by several roundings: sums were kept in them."""
    for name, dtype in reversed(NARROW.items()):  # most numbers of bfloat16 are some of float16, too
        if all(_is_of(evidence, i, dtype) and _is_near(evidence, i, dtype) for i in evidence.wrong):
            yield Candidate(Rounded(what="sums", dtype=name))


def steps_rounded(evidence: Evidence) -> Iterator[Candidate]:
    """Right in 32 bits, and wrong in 16 by as much as steps in between round when they are kept in 16 bits."""
    if not evidence.right_in_wider:
        return
    dtypes = [evidence.expected[i].form.dtype for i in evidence.wrong]
    if all(d in NARROW.values() and _is_near(evidence, i, d) for i, d in zip(evidence.wrong, dtypes, strict=True)):
        yield Candidate(Rounded(what="steps", dtype=str(dtypes[0]).removeprefix("torch.")))


def _rounded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    if name in NARROW:
        return tensor.to(NARROW[name]).double()
    half = 1 << (_TF32_DROPPED - 1)
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + half) >> _TF32_DROPPED << _TF32_DROPPED).view(torch.float32).double()


def _is_of(evidence: Evidence, position: int, dtype: torch.dtype) -> bool:
    """Whether a result of float32 holds nothing but numbers of `dtype`, and not only whole ones, which zeros are."""
    got = evidence.got[position]
    return got.dtype is torch.float32 and bool((got.to(dtype) == got).all()) and bool((got != got.round()).any())


def _is_near(evidence: Evidence, position: int, dtype: torch.dtype) -> bool:
    """Whether a result is off by no more than a few steps that are kept in `dtype`."""
    expected = evidence.expected[position]
    finite = expected.values.isfinite()
    error = (evidence.got[position].double() - expected.values)[finite].abs().max()
    return float(error) <= STEPS_IN_EPS * torch.finfo(dtype).eps * float(expected.values[finite].abs().max())


def _holds(evidence: Evidence, position: int, dtype: torch.dtype) -> bool:
    """Whether a result holds nothing but numbers of `dtype`, each next to what it should be."""
    got, expected = evidence.got[position], evidence.expected[position]
    if got.dtype is not torch.float32 or not bool((got.to(dtype) == got).all()):
        return False
    error = (got.double() - expected.values).abs()
    return bool((error <= torch.finfo(dtype).eps * expected.values.abs() + expected.tolerance).all())
