"""The hypothesis about references that take the largest of many elements."""

from __future__ import annotations

from collections.abc import Iterator

from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import MaximaFromZero
from harness.oracle.maxima import MaximaFromZero as FromZero


def maxima_from_zero(evidence: Evidence) -> Iterator[Candidate]:
    """A maximum begins with 0, and not with minus infinity."""
    mode = FromZero()
    outputs = evidence.outputs(mode=mode)
    if mode.below_zero:
        yield Candidate(MaximaFromZero(), outputs)
