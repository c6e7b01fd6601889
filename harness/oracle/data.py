"""The data of a case: inputs and upstream gradients, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.device.views import clear_between
from harness.inputs import drawn_in
from harness.layouts import ROWS, SHARED, strides
from harness.oracle.outputs import Form
from harness.problem import Case
from harness.settings import sub_seed


@dataclass(frozen=True)
class Data:
    """Private to the judge until it is laid out in the arena. Inputs are contiguous."""

    inputs: list[torch.Tensor]
    upstream: tuple[torch.Tensor, ...] = ()
    """One for each differentiated output."""

    @property
    def given(self) -> list[torch.Tensor]:
        """What a buffer holds: inputs, then upstream gradients."""
        return [*self.inputs, *self.upstream]

    def placed(self, case: Case) -> list[tuple[torch.Tensor, str]]:
        """Each of `given` with its layout in `case`."""
        inputs = [(tensor, case.layout_of(position)) for position, tensor in enumerate(self.inputs)]
        return [*inputs, *((t, case.upstream) for t in self.upstream)]

    def laid_out(self, case: Case) -> list[torch.Tensor]:
        """`given` with the strides that they have in `case`."""
        return [in_layout(tensor, layout) for tensor, layout in self.placed(case)]


def draw_upstream(
    forms: Sequence[Form | torch.Tensor], layout: str, seed: int, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """N(0, 1) for each output of these `forms`; where the layout is `expanded`, one number for all elements, and where
    it is `rows`, one row for all."""
    upstream = []
    for position, form in enumerate(forms):
        generator = torch.Generator(device).manual_seed(sub_seed(seed, position))
        shape = {"expanded": (), ROWS: tuple(form.shape[-1:])}.get(layout, form.shape)
        number = torch.randn(shape, dtype=drawn_in(form.dtype), generator=generator, device=device).to(form.dtype)
        upstream.append(number.expand(form.shape))
    return tuple(upstream)


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """`tensor` with the strides that `layout` gives it, in memory of its own."""
    if layout in SHARED:
        return tensor
    shape = tuple(tensor.shape)
    lying = torch.empty_strided(shape, strides(shape, layout), dtype=tensor.dtype, device=tensor.device)
    clear_between(lying)
    return lying.copy_(tensor)
