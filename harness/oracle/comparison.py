"""One output beside what it should be, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from harness.oracle.outputs import Expected
from harness.oracle.pieces import pieces
from harness.oracle.result_dtypes import eps_of


@dataclass(frozen=True)
class Comparison:
    """How one output compares. `error` is the largest absolute difference over finite elements;
    `worst_index` the element with the largest difference, empty when no element is wrong."""

    ok: bool
    error: float
    message: str = ""
    worst_index: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0


def compare(got: torch.Tensor, expected: Expected) -> Comparison:
    """Compare one output, of the expected shape and on the expected values' device, element by element.

    NaN must stand where the oracle has NaN, and an infinity where it has the same infinity; everywhere
    else the difference must be at most the tolerance, or one unit in the last place: a tolerance for what is small
    beside large constants may be less than that.
    """
    exact = expected.values
    if exact.numel() == 0:
        return Comparison(ok=True, error=0.0)
    if (largest_error := _largest_difference(got, exact)) <= expected.tolerance:  # nothing is NaN, nor masked
        return Comparison(ok=True, error=largest_error)
    error, wrong, index = -1.0, 0, [0] * exact.dim()
    for (dim, start), (value, wanted) in pieces(got, exact):
        ulp = eps_of(expected.form.dtype)
        difference = _difference(value.double(), wanted, ulp, dropout=bool(expected.form.dropout))
        flat = int(difference.argmax())
        largest = float(difference.reshape(-1)[flat])
        wrong += int((difference > expected.tolerance).sum()) if largest > expected.tolerance else 0
        if largest > error:
            # torch.unravel_index imports torch's symbolic shapes, which takes a second
            error, index = largest, [int(i) for i in np.unravel_index(flat, wanted.shape)]
            if index:
                index[dim] += start
    if error <= expected.tolerance:
        return Comparison(ok=True, error=error)
    worst = tuple(index)
    return Comparison(
        ok=False,
        error=error,
        message=f"{wrong:,} of {exact.numel():,} elements of {expected.form.name} are "
        + (f"further from the float64 reference than {expected.tolerance:.3g}" if expected.tolerance else "not equal"),
        worst_index=worst,
        got=float(got[worst]),
        expected=float(exact[worst]),
    )


def compare_all(got: Sequence[torch.Tensor], expected: Sequence[Expected]) -> list[Comparison]:
    """`compare` for each output of a call, which must be as many as are expected."""
    return [compare(tensor, wanted) for tensor, wanted in zip(got, expected, strict=True)]


def right(value: torch.Tensor, exact: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Which elements are as they should be, by the rules of `compare`, booleans in the shape of both."""
    return _difference(value.double(), exact.double(), eps_of(value.dtype), dropout=False) <= tolerance


def _largest_difference(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest absolute difference; NaN where there is one."""
    largest = [(value.double() - wanted).abs_().max() for _, (value, wanted) in pieces(got, exact)]
    return float(torch.stack(largest).max())


def _difference(value: torch.Tensor, exact: torch.Tensor, ulp: float, *, dropout: bool) -> torch.Tensor:
    """How far each element is off. Equal infinities are right, NaN beside NaN is, what is off by a relative `ulp` is,
    and with `dropout` 0 is; any other non-finite pair is infinitely wrong."""
    difference = (value - exact).abs()
    right = (value == exact) | (value.isnan() & exact.isnan())
    right |= exact.isfinite() & (difference <= ulp * exact.abs())
    if dropout:
        right |= value == 0
    return torch.where(right, 0.0, torch.nan_to_num(difference, nan=float("inf"), posinf=float("inf")))
