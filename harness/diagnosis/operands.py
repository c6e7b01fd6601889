"""Hypotheses about parameters and inputs, whatever the problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from harness.diagnosis.evidence import Candidate, Evidence
from harness.explanations import LeftOut, Negated, Returned, Swapped

# Of more parameters, or inputs, pairs are not tried.
MOST_PAIRED = 8


def parameter_left_out(evidence: Evidence) -> Iterator[Candidate]:
    """A parameter (weight, bias) is left out: as with zeros or ones in its place."""
    for name, value in evidence.parameters.items():
        for neutral in (torch.zeros_like(value), torch.ones_like(value)):
            yield Candidate(LeftOut(what=f"'{name}'"), evidence.outputs(parameters={name: neutral}))
    yield from _all_left_out(evidence)


def _all_left_out(evidence: Evidence) -> Iterator[Candidate]:
    """Two of them at once, as a norm without weight and bias."""
    if len(evidence.parameters) > MOST_PAIRED:
        return
    for (one, a), (other, b) in itertools.permutations(evidence.parameters.items(), 2):
        values = {one: torch.ones_like(a), other: torch.zeros_like(b)}
        yield Candidate(LeftOut(what=f"'{one}' and '{other}'"), evidence.outputs(parameters=values))


def parameters_swapped(evidence: Evidence) -> Iterator[Candidate]:
    """Two parameters of one shape stand in each other's place."""
    if len(evidence.parameters) > MOST_PAIRED:
        return
    for (one, a), (other, b) in itertools.combinations(evidence.parameters.items(), 2):
        if a.shape == b.shape:
            outputs = evidence.outputs(parameters={one: b, other: a})
            yield Candidate(Swapped(one=f"'{one}'", other=f"'{other}'"), outputs)


def parameter_negated(evidence: Evidence) -> Iterator[Candidate]:
    """A parameter has the other sign: it is taken off where it should be added."""
    for name, value in evidence.parameters.items():
        yield Candidate(Negated(what=f"'{name}'"), evidence.outputs(parameters={name: -value}))


def input_returned(evidence: Evidence) -> Iterator[Candidate]:
    """The result is an input or the upstream gradient, unchanged."""
    for name, tensor in zip(evidence.names, evidence.given, strict=True):
        yield Candidate(Returned(what=name), [tensor.double()] * len(evidence.got))


def input_left_out(evidence: Evidence) -> Iterator[Candidate]:
    """One of several inputs, or the upstream gradient, is left out: as with zeros or ones in its place."""
    if len(evidence.given) < 2:
        return
    for position, (name, tensor) in enumerate(zip(evidence.names, evidence.given, strict=True)):
        if tensor.is_floating_point():
            for neutral in (torch.zeros_like(tensor), torch.ones_like(tensor)):
                yield Candidate(LeftOut(what=name), evidence.outputs(given={position: neutral}))


def inputs_swapped(evidence: Evidence) -> Iterator[Candidate]:
    """Two inputs of one shape stand in each other's place, or one comes in with the other sign."""
    inputs = list(enumerate(evidence.given[: len(evidence.data.inputs)]))
    if not 2 <= len(inputs) <= MOST_PAIRED:
        return
    names = evidence.names
    for (i, a), (j, b) in itertools.combinations(inputs, 2):
        if a.shape == b.shape and a.dtype == b.dtype:
            yield Candidate(Swapped(one=names[i], other=names[j]), evidence.outputs(given={i: b, j: a}))
    for i, a in inputs:
        if a.is_floating_point():
            yield Candidate(Negated(what=names[i]), evidence.outputs(given={i: -a}))


def results_swapped(evidence: Evidence) -> Iterator[Candidate]:
    """Two results, such as the gradients of weight and bias, stand in each other's place."""
    exact = [e.values for e in evidence.expected]
    wrong = evidence.wrong if len(evidence.wrong) <= MOST_PAIRED else []
    for i, j in itertools.combinations(wrong, 2):
        if exact[i].shape == exact[j].shape:
            swapped = {i: exact[j], j: exact[i]}
            one, other = (evidence.expected[k].form.name for k in (i, j))
            yield Candidate(Swapped(one=one, other=other), [swapped.get(k, e) for k, e in enumerate(exact)])
