"""Hypotheses about an activation that the reference applies."""

from __future__ import annotations

from collections.abc import Iterator

from harness.diagnosis.altered import OfGelu, WithoutActivation
from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import LeftOut, OtherGelu


def gelu_form(evidence: Evidence) -> Iterator[Candidate]:
    """GELU is in its tanh form where the exact one was asked for, or the other way round."""
    mode = OfGelu()
    outputs = evidence.outputs(mode=mode)
    if mode.used:
        asked = "tanh" if mode.form == "tanh" else "exact"
        yield Candidate(OtherGelu(used="exact" if asked == "tanh" else "tanh", expected=asked), outputs)


def activation_left_out(evidence: Evidence) -> Iterator[Candidate]:
    """Activations (relu, gelu, silu, …) are left out: what they are applied to stands in their place."""
    mode = WithoutActivation()
    outputs = evidence.outputs(mode=mode)
    if mode.used:
        yield Candidate(LeftOut(what=" and ".join(sorted(mode.names))), outputs)
