"""Hypotheses about the order in which tensors lie in memory, whatever the problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from harness.diagnosis.evidence import Candidate, Evidence
from harness.diagnosis.operands import MOST_PAIRED
from harness.explanations import Displaced, Misread
from harness.oracle.comparison import right


def input_read_as_contiguous(evidence: Evidence) -> Iterator[Candidate]:
    """An input that is not contiguous was read as if it were."""
    for position, (name, tensor) in enumerate(zip(evidence.names, evidence.given, strict=True)):
        if not tensor.is_contiguous() and 0 not in tensor.stride():
            in_memory = torch.as_strided(tensor, (tensor.numel(),), (1,)).reshape(tensor.shape)
            outputs = evidence.outputs(given={position: in_memory})
            yield Candidate(Misread(what=name, how="contiguous"), outputs)


def input_read_as_int32(evidence: Evidence) -> Iterator[Candidate]:
    """An input of int64 was read as int32."""
    for position, (name, tensor) in enumerate(zip(evidence.names, evidence.given, strict=True)):
        if tensor.dtype is torch.int64 and tensor.numel() > 1:
            halves = tensor.contiguous().flatten().view(torch.int32)[: tensor.numel()].reshape(tensor.shape)
            outputs = evidence.outputs(given={position: halves.long()})
            yield Candidate(Misread(what=name, how="int32"), outputs)


def read_as_transposed(evidence: Evidence) -> Iterator[Candidate]:
    """Inputs or a parameter were read, or the output written, with the last two dimensions exchanged in memory."""
    for position, (name, tensor) in enumerate(zip(evidence.names, evidence.given, strict=True)):
        if tensor.dim() >= 2:
            outputs = evidence.outputs(given={position: _exchanged(tensor)})
            yield Candidate(Misread(what=name, how="transposed"), outputs)
    yield from _both_transposed(evidence)
    for name, value in evidence.parameters.items():
        if value.dim() >= 2:
            outputs = evidence.outputs(parameters={name: _exchanged(value)})
            yield Candidate(Misread(what=f"'{name}'", how="transposed"), outputs)
    exact = [e.values for e in evidence.expected]
    if all(exact[i].dim() >= 2 for i in evidence.wrong):
        written = [e.mT.reshape(e.shape) if e.dim() >= 2 else e for e in exact]
        yield Candidate(Misread(what=_named(evidence), how="transposed"), written)


def _both_transposed(evidence: Evidence) -> Iterator[Candidate]:
    """Two inputs, as both operands of a product."""
    inputs = [i for i, t in enumerate(evidence.given[: len(evidence.data.inputs)]) if t.dim() >= 2]
    for one, other in itertools.combinations(inputs, 2) if len(inputs) <= MOST_PAIRED else ():
        outputs = evidence.outputs(given={i: _exchanged(evidence.given[i]) for i in (one, other)})
        names = f"{evidence.names[one]} and of {evidence.names[other]}"
        yield Candidate(Misread(what=names, how="transposed"), outputs)


# Of a displaced result so much may be anything.
MOST_OPEN = 0.25


def displaced(evidence: Evidence) -> Iterator[Candidate]:
    """Each element stands one element or one row too far, in memory."""
    exact = [evidence.expected[i].values for i in evidence.wrong]
    if any(e.numel() < 8 for e in exact):
        return
    rows = {e.shape[-1] for e in exact if e.dim() > 1}
    fewest = min(e.numel() for e in exact)
    for by in sorted(n for n in {1, *(rows if len(rows) == 1 else ())} if 0 < n <= MOST_OPEN * fewest):
        for step in (by, -by):
            if all(_is_displaced(evidence, i, step) for i in evidence.wrong):
                yield Candidate(Displaced(by=step))


def _is_displaced(evidence: Evidence, position: int, step: int) -> bool:
    """Whether each element of a result stands `step` places after its own, and is no longer right there. At the end
    that lies open anything may stand."""
    expected = evidence.expected[position]
    got, exact = evidence.got[position].flatten(), expected.values.flatten()
    closed = slice(step, None) if step > 0 else slice(None, step)
    got, exact, moved = got[closed], exact[closed], exact.roll(step)[closed]
    return bool(right(got, moved, expected.tolerance).all() and not right(moved, exact, expected.tolerance).all())


def _exchanged(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements as they come where the last two dimensions are taken for each other's."""
    return tensor.contiguous().reshape(*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2]).mT.contiguous()


def _named(evidence: Evidence) -> str:
    return " and ".join(evidence.expected[i].form.name for i in evidence.wrong)
