"""What is known of a wrong result, and what the reference gives when it is run otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.diagnosis.altered import Steps
from harness.explanations import Explanation
from harness.oracle import Expected, compare, compare_all, exact_outputs
from harness.oracle.comparison import right
from harness.oracle.copies import copied
from harness.oracle.data import Data
from harness.oracle.differentiate import argument_names
from harness.oracle.reference import Reference

Outputs = Sequence[torch.Tensor]

# So many elements are compared before all of them are: most hypotheses are wrong everywhere.
SAMPLE = 1 << 12

OnWrong = Callable[["Evidence"], None]
"""Told of a call that went wrong."""


@dataclass(frozen=True)
class Candidate:
    """An explanation, and what would come out if it were true; None where it has been seen to be true."""

    explanation: Explanation
    outputs: Outputs | None = None


@dataclass(frozen=True)
class Evidence:
    """One call whose results are not what they should be, all on the judge's device."""

    reference: Reference
    data: Data
    expected: Sequence[Expected]
    got: Outputs
    same_data: Sequence[Outputs] = ()
    """Results of other calls on the same data and weights."""
    earlier: Sequence[Outputs] = ()
    """Results of calls before it, on other data or weights."""
    earlier_model: torch.nn.Module | None = None
    """The reference with the weights that calls before it had, where they were others."""
    earlier_data: Data | None = None
    """The data of calls before it, where they were others."""
    right_in_wider: bool = False
    """Whether all cases of 32 and 64 bits passed, of which there were some."""

    @cached_property
    def wrong(self) -> list[int]:
        """The results that are not as expected, by position. Where outputs are, gradients follow from them."""
        wrong = [i for i, c in enumerate(compare_all(self.got, self.expected)) if not c.ok]
        outputs = [i for i in wrong if i < len(self.reference.of_part(self.expected, "forward"))]
        return outputs or wrong

    @property
    def elements(self) -> int:
        """Of inputs and outputs."""
        return sum(t.numel() for t in (*self.data.given, *self.got))

    @property
    def is_rounded(self) -> bool:
        """Whether all that is wrong holds floating numbers."""
        return all(self.expected[i].form.dtype.is_floating_point for i in self.wrong)

    @cached_property
    def given(self) -> list[torch.Tensor]:
        """Inputs and upstream gradients, laid out as the submission got them."""
        return self.data.laid_out(self.reference.case)

    @cached_property
    def names(self) -> list[str]:
        """How reports call each of `given`."""
        arguments = argument_names(self.reference.model)[: len(self.data.inputs)]
        return [*(f"input '{name}'" for name in arguments), *["the upstream gradient"] * len(self.data.upstream)]

    @cached_property
    def parameters(self) -> dict[str, torch.Tensor]:
        """Of the reference, those that hold floating numbers."""
        named = self.reference.model.named_parameters()
        return {name: p.detach() for name, p in named if p.is_floating_point() and p.numel()}

    @cached_property
    def steps(self) -> frozenset[str]:
        """The names of all operators that the reference is made of."""
        mode = Steps()
        self.outputs(mode=mode)
        return frozenset(mode.names)

    def explains(self, outputs: Outputs) -> bool:
        """Whether these are the results, in all that is wrong, to the tolerance."""
        return all(self.fits(i, outputs[i]) for i in self.wrong)

    def fits(self, position: int, values: torch.Tensor) -> bool:
        """Whether one result has these values (float64). The tolerance grows with them, never shrinks; where it would
        hide what is wrong as well, nothing fits."""
        expected = self.expected[position]
        if values.shape != expected.values.shape:
            return False
        scale, own = _largest(values), _largest(expected.values)
        tolerance = expected.tolerance * max(1.0, scale / own if own else 1.0)
        if not right(_sample(self.got[position]), _sample(values), tolerance).all():
            return False
        if 0 < _largest(self.got[position].double() - expected.values) <= tolerance:
            return False
        return compare(self.got[position], replace(expected, values=values, tolerance=tolerance)).ok

    def outputs(
        self,
        *,
        parameters: Mapping[str, torch.Tensor] | None = None,
        given: Mapping[int, torch.Tensor] | None = None,
        model: torch.nn.Module | None = None,
        data: Data | None = None,
        mode: contextlib.AbstractContextManager | None = None,
    ) -> list[torch.Tensor]:
        """What the reference gives in float64 with other values of some parameters (by name) or of what it is `given`
        (by position), with another model or other data, or within `mode`."""
        function = replace(self.reference, model=copied(model or self.reference.model).double()).function()
        _set(function, self.reference, parameters or {})
        laid_out = data.laid_out(self.reference.case) if data else self.given
        tensors = [t.double() if t.is_floating_point() else t for t in laid_out]
        for position, value in (given or {}).items():
            tensors[position] = value.double() if value.is_floating_point() else value
        # Attention as the products and sums that it is made of, so that `mode` sees them.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), mode or contextlib.nullcontext():
            return [t.clone() for t in exact_outputs(function, tensors)]


def _set(function: torch.nn.Module, reference: Reference, values: Mapping[str, torch.Tensor]) -> None:
    """Give the function's model these values."""
    model = function.model if reference.differentiation else function
    named = dict(model.named_parameters())  # type: ignore[union-attr, operator]
    with torch.no_grad():
        for name, value in values.items():
            named[name].copy_(value)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements, from all over it."""
    flat = tensor.flatten()
    return flat[:: max(1, flat.numel() // SAMPLE)]


def _largest(values: torch.Tensor) -> float:
    """The largest finite absolute value; 0 for none."""
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0
