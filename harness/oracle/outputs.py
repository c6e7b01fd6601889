"""Outputs of a reference: their values in float64, and the form that a submission's must have."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.errors import a_type
from harness.oracle.pieces import pieces
from harness.oracle.widened import Widened

# float64 has all integers up to here.
EXACT_INTEGERS = 2**53

# An error bound that does not see so much of an output says little of what stands there.
UNSEEN_SHARE = 0.1

# So many times smaller than the error bound are few numbers of one scale, also in 16 bits: of N(0, 1) in bfloat16 some
# hundredths are below the bound itself.
FAR_BELOW = 16.0


@dataclass(frozen=True)
class Form:
    """What a tensor looks like; for an output, as the reference gives it in its own dtype."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    name: str = "the output"
    """How reports call it."""
    dropout: float = 0.0
    """The probability with which an element may be 0 instead of what is expected."""
    alone: bool = False
    """Whether the reference returns it as it is, and not in a tuple or list."""
    of_input: bool = False
    """Whether the reference returns the memory of an input or a weight, so that it changes where that does."""
    shares: bool = False
    """Whether the reference returns the memory of another of its outputs."""
    infers: bool = False
    """Whether the reference returns an inference tensor in any mode."""
    between: torch.dtype | None = None
    """The coarsest dtype of results on the way to all outputs, where that has 16 bits or fewer: under autocast."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def form_of(tensor: torch.Tensor) -> Form:
    """What `tensor` looks like."""
    return Form(tuple(tensor.shape), tensor.stride(), tensor.dtype)


@dataclass(frozen=True)
class Expected:
    """One output as it should be.

    `values` is the float64 reference. `tolerance` is absolute, in the output's unit, and so is `reference_error`, the
    error of the reference in its own dtype on this device; 0 where it did not run there.
    """

    values: torch.Tensor
    form: Form
    tolerance: float
    reference_error: float = 0.0

    def unseen(self) -> int:
        """How many elements are not 0 and far below the tolerance: beside far larger ones they go for nothing."""
        return sum(int(self.is_unseen(part).sum()) for _, (part,) in pieces(self.values))

    def is_unseen(self, values: torch.Tensor) -> torch.Tensor:
        """Which of `values` those are."""
        return far_below(values, self.tolerance)


def far_below(values: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Which of `values` are not 0 and go for nothing under a `tolerance`."""
    return (values != 0) & (values.abs() * FAR_BELOW <= tolerance)


def outputs_of(result: object) -> list[torch.Tensor]:
    """The tensors that a forward returned: one, or a tuple or list of them. Raises TypeError otherwise."""
    tensors = []
    for value in result if isinstance(result, tuple | list) else [result]:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"the reference returned {a_type(value)}; tensors are expected")
        if value.is_complex():
            raise TypeError("the reference returned complex numbers, which are not compared; see torch.view_as_real")
        tensors.append(value)
    if not tensors:
        raise TypeError(f"the reference returned an empty {type(result).__name__}; tensors are expected")
    return tensors


def exact_outputs(
    model64: torch.nn.Module, inputs: Sequence[torch.Tensor], *, widened: bool = True
) -> list[torch.Tensor]:
    """The outputs of a reference in float64; integers and booleans become float64, too. `widened` where float32 in the
    reference's text stands for float64 as well, see `may_be_widened`."""
    with Widened() if widened else contextlib.nullcontext():
        returned = model64(*[t.double() if t.is_floating_point() else t for t in inputs])
    return [_as_float64(t) for t in outputs_of(returned)]


def _as_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Raises TypeError for integers that float64 cannot tell from the next ones."""
    if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel():
        signed = tensor.view(torch.int64)
        least, most = int(signed.min()), int(signed.max())
        beyond_signed = tensor.dtype == torch.uint64 and least < 0  # 2^63 and more
        if beyond_signed or max(most, -least) >= EXACT_INTEGERS:
            raise TypeError(
                "the reference returned integers of 2^53 or more, which are not compared: float64 has not all of them"
            )
    return tensor.double()


def same_strides(shape: Sequence[int], got: Sequence[int], expected: Sequence[int]) -> bool:
    """Whether two stride tuples place the elements alike; dimensions of size 1 place nothing."""
    if 0 in shape:
        return True
    return all(g == e for size, g, e in zip(shape, got, expected, strict=True) if size > 1)


def has_form(tensor: torch.Tensor, form: Form) -> bool:
    """Whether a tensor has the shape, the dtype and the strides of a form."""
    alike = (tuple(tensor.shape), tensor.dtype) == (form.shape, form.dtype)
    return alike and same_strides(form.shape, tensor.stride(), form.stride)
