"""One case laid out in a worker, and calls of it that the judge looks at in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from harness import oracle
from harness.errors import SubmissionError
from harness.judging.runner import Runner
from harness.oracle.data import Data
from harness.oracle.form import check_form
from harness.oracle.reference import Reference
from harness.protocol.replies import as_error
from harness.protocol.wire import Ran
from harness.reasons import Reason


@dataclass(frozen=True)
class Seen:
    """One call: the tensors that it gave, read by the judge, and the worker's reply."""

    tensors: list[torch.Tensor]
    ran: Ran


class Observation:
    """A case's weights, inputs and upstream gradients in the arena, and the submission's model built on them."""

    def __init__(
        self, runner: Runner, reference: Reference, data: Data, weights: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """`weights` stand for the reference's own of these names. Raises SubmissionError when the model cannot be
        built."""
        self.runner = runner
        self.reference = reference
        self.data = data
        state = [(tensor, "contiguous") for tensor in {**reference.state, **(weights or {})}.values()]
        refs = runner.device.arena.lay_out([*state, *data.placed(reference.case)])
        self._given = refs[len(state) :]
        self._forms: list[oracle.Form] = []
        runner.construct(reference, refs[: len(state)])

    def stage(self, call: str, expected: Sequence[oracle.Expected], *, train: bool = True) -> None:
        """What calls do from now on (see wire.Stage), and what must come out. Raises SubmissionError."""
        self._forms = [e.form for e in expected]
        reference = self.reference
        self.runner.stage([self._given], self._forms, call, reference.differentiation, train, reference.case.constants)

    def call(self, order: str, seed: int, random_seed: int | None = None) -> Seen:
        """One call, on the emulator with threads in `order`. The outputs' form is checked, and no value.

        Raises SubmissionError for a call that failed, has the wrong form, or changed its inputs."""
        device = self.runner.device
        ran = self.runner.observe(order, seed % 2**31, random_seed)
        if ran.forbidden:
            raise SubmissionError(Reason.FORBIDDEN_OP, f"{ran.forbidden[0]} ran inside ModelNew.")
        if ran.findings:
            raise as_error(ran.findings[0])
        check_form(ran.outputs, self._forms, device.torch_device.type, emulated=device.name == "emulator")
        tensors = [self.runner.reader.read(ref, ran.handles).clone() for ref in ran.outputs]
        device.synchronize()  # the next request lets the worker write over what is copied here
        self._require_unchanged(ran)
        return Seen(tensors, ran)

    def _require_unchanged(self, ran: Ran) -> None:
        views = [self.runner.device.arena.view(ref) for ref in self._given]
        if ran.inputs:  # the emulator's own copies, which must have the form of what was given
            said = [(ref.shape, ref.stride, ref.dtype) for ref in ran.inputs]
            if said != [(ref.shape, ref.stride, ref.dtype) for ref in self._given]:
                raise SubmissionError(
                    Reason.BAD_MESSAGE, "The worker names inputs that are not of the form it was given."
                )
            views += [self.runner.reader.read(ref, ran.handles) for ref in ran.inputs]
        given = self.data.given
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


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits; NaN is like itself here."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    flat = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*flat)
