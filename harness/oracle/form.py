"""What outputs must look like before anybody looks at their values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from harness.device.views import span
from harness.errors import SubmissionError
from harness.oracle.outputs import Form, same_strides
from harness.protocol.wire import OutputRef
from harness.reasons import Reason

_PARAMETER = "torch.nn.parameter.Parameter"


def check_form(
    outputs: Sequence[OutputRef], expected: Sequence[Form], device: str, *, emulated: bool, strides: bool = True
) -> None:
    """Number, type, device, dtype, shape and strides of one call's outputs. Without `strides`, those only that cannot
    be read: see `check_strides`.

    Raises SubmissionError with the reason wrong_output and a sentence that says what was found.
    """
    if len(outputs) != len(expected):
        raise SubmissionError(
            Reason.WRONG_OUTPUT, f"A call gave {len(outputs)} tensors; the reference gives {len(expected)}."
        )
    for ref, form in zip(outputs, expected, strict=True):
        which = form.name
        dtype = str(form.dtype).removeprefix("torch.")
        on = "cuda" if emulated else device
        own = form.of_input and ref.type == _PARAMETER  # where the reference returns a weight, it may be one
        for what, found, needed in (
            ("type", ref.type, _PARAMETER if own else "torch.Tensor"),
            ("device", ref.device, on),
            ("dtype", ref.dtype, dtype),
            ("shape", tuple(ref.shape), form.shape),
        ):
            if found != needed:
                raise SubmissionError(Reason.WRONG_OUTPUT, f"The {what} of {which} is {found}; expected {needed}.")
        if strides or not _lies_together(ref):
            _check_strides(ref, form)


def check_strides(outputs: Sequence[OutputRef], expected: Sequence[Form]) -> None:
    """Strides of outputs that are right in all else. Raises SubmissionError as `check_form`."""
    for ref, form in zip(outputs, expected, strict=True):
        _check_strides(ref, form)


def check_apart(outputs: Sequence[OutputRef], expected: Sequence[Form]) -> None:
    """No output lies in another's memory where none does that the reference returns. Raises SubmissionError as
    `check_form`, which has found them right."""
    placed = [(ref, form) for ref, form in zip(outputs, expected, strict=True) if _lies_together(ref) and form.nbytes]
    for (one, its), (other, others) in itertools.combinations(placed, 2):
        overlap = one.address < other.address + others.nbytes and other.address < one.address + its.nbytes
        if overlap and not (its.shares and others.shares):
            raise SubmissionError(
                Reason.WRONG_OUTPUT,
                f"{its.name} and {others.name} share memory, which the reference's do not: who writes into one of them "
                "changes both. Return a tensor for each.",
            )


def _check_strides(ref: OutputRef, form: Form) -> None:
    if len(ref.stride) != len(ref.shape) or not same_strides(form.shape, ref.stride, form.stride):
        raise SubmissionError(
            Reason.WRONG_OUTPUT,
            f"The strides of {form.name} are {tuple(ref.stride)}; the reference's are {form.stride}."
            + (" Return it as .contiguous() gives it." if _is_contiguous(form) else ""),
        )


def _lies_together(ref: OutputRef) -> bool:
    """Whether it spans no more memory than its elements take."""
    if len(ref.stride) != len(ref.shape) or min(ref.stride, default=0) < 0:
        return False
    return span(ref.shape, ref.stride) <= math.prod(ref.shape)


def _is_contiguous(form: Form) -> bool:
    strides = [math.prod(form.shape[dim + 1 :]) for dim in range(len(form.shape))]
    return same_strides(form.shape, strides, form.stride)
