"""What a reference gives: its outputs in float64, and the form that a submission's must have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Form:
    """What an output must look like: that of the reference in its own dtype."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    name: str = "the output"
    """How reports call it."""
    dropout: float = 0.0
    """The probability with which an element may be 0 instead of what is expected."""
    alone: bool = False
    """Whether the reference returns it as it is, and not in a tuple or list."""


@dataclass(frozen=True)
class Expected:
    """One output as it should be.

    `values` is the float64 reference; `tolerance` and `reference_error` (that of the reference in its own
    dtype on this device) are absolute, in the output's unit.
    """

    values: torch.Tensor
    form: Form
    tolerance: float
    reference_error: float


def outputs_of(result: object) -> list[torch.Tensor]:
    """The tensors that a forward returned: one, or a tuple or list of them. Raises TypeError otherwise."""
    tensors = []
    for value in result if isinstance(result, tuple | list) else [result]:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"the reference returned a {type(value).__name__}; tensors are expected")
        tensors.append(value)
    return tensors


def exact_outputs(model64: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a reference in float64 gives for `inputs`, integers and booleans as float64, too."""
    return [t.double() for t in outputs_of(model64(*[t.double() if t.is_floating_point() else t for t in inputs]))]


def same_strides(shape: Sequence[int], got: Sequence[int], expected: Sequence[int]) -> bool:
    """Whether two stride tuples place the elements alike; dimensions of size 1 place nothing."""
    if 0 in shape:
        return True
    return all(g == e for size, g, e in zip(shape, got, expected, strict=True) if size > 1)
