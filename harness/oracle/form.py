"""What outputs must look like before anybody looks at their values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.errors import SubmissionError
from harness.oracle.outputs import Form, same_strides
from harness.protocol.wire import OutputRef
from harness.reasons import Reason


def check_form(outputs: Sequence[OutputRef], expected: Sequence[Form], device: str, *, emulated: bool) -> None:
    """Number, type, device, dtype, shape and strides of one call's outputs.

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
        for what, found, needed in (
            ("type", ref.type, "torch.Tensor"),
            ("device", ref.device, on),
            ("dtype", ref.dtype, dtype),
            ("shape", tuple(ref.shape), form.shape),
        ):
            if found != needed:
                raise SubmissionError(Reason.WRONG_OUTPUT, f"The {what} of {which} is {found}; expected {needed}.")
        if len(ref.stride) != len(ref.shape) or not same_strides(form.shape, ref.stride, form.stride):
            raise SubmissionError(
                Reason.WRONG_OUTPUT,
                f"The strides of {which} are {tuple(ref.stride)}; the reference's are {form.stride}."
                + (" Return it as .contiguous() gives it." if _is_contiguous(form) else ""),
            )


def _is_contiguous(form: Form) -> bool:
    strides = [math.prod(form.shape[dim + 1 :]) for dim in range(len(form.shape))]
    return same_strides(form.shape, strides, form.stride)
