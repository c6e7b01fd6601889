"""Hypotheses that look at more than one call, whatever the problem."""

from __future__ import annotations

from collections.abc import Iterator

from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import Earlier, NotDeterministic
from harness.oracle.comparison import right


def earlier_call(evidence: Evidence) -> Iterator[Candidate]:
    """The result is an earlier call's, or what an earlier call's weights or data give."""
    for outputs in evidence.earlier:
        if [t.shape for t in outputs] == [t.shape for t in evidence.got]:
            yield Candidate(Earlier(what="result"), [t.double() for t in outputs])
    if evidence.earlier_model is not None:
        yield Candidate(Earlier(what="weights"), evidence.outputs(model=evidence.earlier_model))
    before = evidence.earlier_data
    if before and [t.shape for t in before.given] == [t.shape for t in evidence.data.given]:
        yield Candidate(Earlier(what="inputs"), evidence.outputs(data=before))


def not_deterministic(evidence: Evidence) -> Iterator[Candidate]:
    """Two calls on the same data give results that differ by more than the tolerance."""
    for outputs in evidence.same_data:
        for position in evidence.wrong:
            differs = ~right(evidence.got[position], outputs[position], evidence.expected[position].tolerance)
            if count := int(differs.sum()):
                yield Candidate(NotDeterministic(differing=count, of=differs.numel()))
