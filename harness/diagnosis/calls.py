"""Hypotheses that look at more than one call, whatever the problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from harness.diagnosis.evidence import Candidate, Evidence, Outputs
from harness.explanations import Earlier, KeptFromBefore, NotDeterministic
from harness.oracle import compare_all
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


def earlier_parameter(evidence: Evidence) -> Iterator[Candidate]:
    """One parameter is an earlier call's, as where it was packed once; all else is this call's."""
    if evidence.earlier_model is None:
        return
    before = dict(evidence.earlier_model.named_parameters())
    for name in evidence.parameters:
        outputs = evidence.outputs(parameters={name: before[name].detach()})
        yield Candidate(Earlier(what=f"'{name}'"), outputs)


def kept_from_before(evidence: Evidence) -> Iterator[Candidate]:
    """A new model's calls on the same data are right: something is kept from the calls before."""
    others = evidence.same_data
    if evidence.earlier and others and all(all(c.ok for c in compare_all(o, evidence.expected)) for o in others):
        yield Candidate(KeptFromBefore())


def not_deterministic(evidence: Evidence) -> Iterator[Candidate]:
    """Two calls on the same data give results that differ by more than the tolerance."""
    for one, other in _alike(evidence):
        for position in evidence.wrong:
            differs = ~right(one[position], other[position], evidence.expected[position].tolerance)
            if count := int(differs.sum()):
                yield Candidate(NotDeterministic(differing=count, of=differs.numel()))


def _alike(evidence: Evidence) -> Sequence[tuple[Outputs, Outputs]]:
    """Results that should be the same. Those of a new model say nothing of a call that others came before."""
    if evidence.earlier:
        return list(itertools.combinations(evidence.same_data, 2))
    return [(evidence.got, outputs) for outputs in evidence.same_data]
