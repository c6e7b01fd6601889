"""One case laid out in a worker, and calls of it that the judge looks at in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from harness import oracle
from harness.device.arena import Arena
from harness.errors import SubmissionError
from harness.judging.runner import Runner
from harness.oracle.data import Data
from harness.oracle.form import check_apart, check_form, check_strides
from harness.oracle.further import Further, Variant
from harness.oracle.reference import Reference
from harness.protocol.replies import as_error
from harness.protocol.wire import Differentiation, GradMode, Ran, RandomState, Reweighing, Run, TensorRef
from harness.reasons import Reason

_Placed = list[tuple[torch.Tensor, str]]
"""Tensors, each with its layout."""


@dataclass(frozen=True)
class Seen:
    """One call: the tensors that it gave, read by the judge, and the worker's reply."""

    tensors: list[torch.Tensor]
    ran: Ran


# What a call is on: the case's own inputs, those of another reference, or those of a variant in Further.elsewhere, by
# its number.
Where = Literal["own", "beside"] | int


@dataclass
class _Buffer:
    """Where inputs and upstream gradients lie in the arena, and what they are now."""

    refs: list[TensorRef]
    data: Data


class Observation:
    """A case's weights, inputs and upstream gradients in the arena, and the submission's model built on them. Beside
    them may lie those of another reference, whose form of inputs may be another, and the case's own data, once for each
    way in which they lie otherwise."""

    def __init__(
        self,
        runner: Runner,
        reference: Reference,
        data: Data,
        weights: Mapping[str, torch.Tensor] | None = None,
        further: Further | None = None,
    ) -> None:
        """`weights` stand for the reference's own of these names. Raises SubmissionError when the model cannot be
        built."""
        self.runner = runner
        self.reference = reference
        own = [_state({**reference.state, **(weights or {})}), data.placed(reference.case)]
        variants: dict[Where, Variant] = {}
        if further:
            variants = {"beside": further.weights, **dict(enumerate(further.elsewhere))}
        other = [_state(further.weights.reference.state) if further else [], *map(_placed, variants.values())]
        self._state, given, self._other_state, *others = _lay_out(runner.device.arena, [*own, *other])
        self._own = self._buffer = _Buffer(given, data)
        self._buffers: dict[Where, _Buffer] = {"own": self._own}
        for (where, variant), refs in zip(variants.items(), others, strict=True):
            self._buffers[where] = _Buffer(refs, variant.data)
        self._call = ""
        self._forms: list[oracle.Form] = []
        self._given_count = len(given)
        self._rewritten = False
        self._models = 1
        self.calls = 0
        """So many were made."""
        runner.construct(reference, self._state)

    @property
    def data(self) -> Data:
        """What lies where the next call looks."""
        return self._buffer.data

    def stage(
        self,
        call: str,
        expected: Sequence[oracle.Expected],
        *,
        train: bool = True,
        on: Where = "own",
        model: int = 0,
        differentiated: bool = True,
        partial: Differentiation | None = None,
    ) -> None:
        """What calls do from now on (see wire.Stage), on which inputs, and what must come out. Without `differentiated`
        nothing is prepared for a backward, and with `partial` only that. Raises SubmissionError."""
        self._call = call
        self._forms = [e.form for e in expected]
        self._buffer = self._buffers[on]
        self._given_count = len(self.data.given if differentiated else self.data.inputs)
        refs = self._buffer.refs[: self._given_count]
        wanted = (partial or self.reference.differentiation) if differentiated else None
        self.runner.stage([refs], self._forms, call, wanted, train, self.reference.case.constants, model)

    def rewrite(self, data: Data) -> None:
        """Other data of the same form, in the memory where the case's own lie."""
        for ref, tensor in zip(self._own.refs, data.given, strict=True):
            self.runner.device.arena.write(ref, tensor)
        self.runner.device.synchronize()  # the worker reads it next
        self._own.data = data
        self._rewritten = True

    def reweigh(self, how: Reweighing, *, beside: bool) -> None:
        """Give the staged model the weights beside its own, or its own again. Raises SubmissionError."""
        self.runner.reweigh(self.reference, self._other_state if beside else self._state, how)

    def construct_beside(self) -> int:
        """Another model on the other weights; returns its number. Raises SubmissionError."""
        self.runner.construct(self.reference, self._other_state, beside=True)
        self._models += 1
        return self._models - 1

    def construct_to_stand_by(self, init: Sequence[Any]) -> None:
        """A model with other arguments of the constructor, which is never called. Raises SubmissionError."""
        self.runner.construct_to_stand_by(self.reference, init)

    def call(
        self,
        order: str,
        seed: int,
        random_seed: int | None = None,
        *,
        mode: GradMode = "",
        keeps: bool = False,
        strides: bool = True,
        random_state: RandomState = "",
    ) -> Seen:
        """One call, on the emulator with threads in `order`. The outputs' form is checked, and no value; without
        `strides` all but those, see `require_strides`. What the call `keeps` can be read again.

        Raises SubmissionError for a call that failed, has the wrong form, or changed its inputs."""
        device = self.runner.device
        self.calls += 1
        rewritten, self._rewritten = self._rewritten, False
        ran = self.runner.observe(Run(0, mode, rewritten, keeps, order, seed % 2**31, random_seed, random_state))
        if ran.forbidden:
            raise SubmissionError(Reason.FORBIDDEN_OP, f"{ran.forbidden[0]} ran inside ModelNew.")
        emulated = device.name == "emulator"
        if ran.findings:
            raise as_error(ran.findings, emulated=emulated)
        check_form(ran.outputs, self._forms, device.torch_device.type, emulated=emulated, strides=strides)
        if self._call == "forward":  # a step gives gradients, too, of which autograd may give one for two
            check_apart(ran.outputs, self._forms)
        tensors = self.read(ran)
        self._require_unchanged(ran)
        return Seen(tensors, ran)

    def require_strides(self, seen: Seen) -> None:
        """The outputs lie as the reference's do. Raises SubmissionError."""
        check_strides(seen.ran.outputs, self._forms)

    def read(self, ran: Ran) -> list[torch.Tensor]:
        """Copies of a call's outputs as they are now. Raises SubmissionError."""
        tensors = [self.runner.reader.copy(ref, ran.handles) for ref in ran.outputs]
        self.runner.device.synchronize()  # the next request lets the worker write over what is copied here
        return tensors

    def _require_unchanged(self, ran: Ran) -> None:
        given, refs = self.data.given[: self._given_count], self._buffer.refs[: self._given_count]
        views = [self.runner.device.arena.view(ref) for ref in refs]
        if ran.inputs:  # the emulator's own copies, which must have the form of what was given
            said = [(ref.shape, ref.stride, ref.dtype) for ref in ran.inputs]
            if said != [(ref.shape, ref.stride, ref.dtype) for ref in refs]:
                raise SubmissionError(
                    Reason.BAD_MESSAGE, "The worker names inputs that are not of the form it was given."
                )
            views += [self.runner.reader.read(ref, ran.handles) for ref in ran.inputs]
        pristine = given * (len(views) // max(len(given), 1))
        for position, (view, tensor) in enumerate(zip(views, pristine, strict=True)):
            if not same_bits(view, tensor):
                raise SubmissionError(
                    Reason.INPUT_MODIFIED,
                    f"{self._name(position % len(given))} was changed by the call; a drop-in must leave what it is "
                    "given alone.",
                )

    def _name(self, position: int) -> str:
        count = len(self.data.inputs)
        return f"Input {position}" if position < count else f"Upstream gradient {position - count}"


def _state(tensors: Mapping[str, torch.Tensor]) -> _Placed:
    return [(tensor, "contiguous") for tensor in tensors.values()]


def _placed(variant: Variant) -> _Placed:
    return variant.data.placed(variant.reference.case)


def _lay_out(arena: Arena, groups: Sequence[_Placed]) -> list[list[TensorRef]]:
    """Where the tensors of each group lie."""
    refs = iter(arena.lay_out([each for group in groups for each in group]))
    return [[next(refs) for _ in group] for group in groups]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits; NaN is like itself here."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    bits = _BITS.get(a.element_size(), torch.uint8)  # element by element, or byte by byte
    return torch.equal(*(t.contiguous().reshape(-1).view(bits) for t in (a, b)))


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
