"""One input of a problem in all slots of a case: what was dealt into them, and what changes there when a round begins.

Positions are drawn anew for each slot, with values that nobody else knows; harness.timing.dealing says why these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.protocol.wire import TensorRef

CHANGED_ONE_IN = 1024

# A new value is the largest of so many that stand near: in the same last dimensions, as many of them as have so many
# elements together.
LARGEST_OF = 4
NEAR_ELEMENTS = 256

# It is less than the largest by up to this share of what their mean is less: where two elements of a row are the same,
# a reference that sorts, or gives the places of the largest, has no order for them.
BELOW_THE_LARGEST = 1 / 16

# Up to this many bytes a deal is one gather; beyond it a copy for each slot needs no second copy of everything.
GATHER_BYTES = 64 << 20


@dataclass(frozen=True)
class Change:
    """Elements of one input in every slot: logical positions and new values, both of shape (slots, count), and
    where they lie in the arena's elements, (slots * count)."""

    positions: torch.Tensor
    values: torch.Tensor
    places: torch.Tensor


Whole = dict[int, torch.Tensor]
"""All of one input, by slot."""


class Input:
    """One input of the problem: its data sets, and its place in every slot. One element in `spacing` changes when a
    round begins."""

    def __init__(
        self,
        sets: Sequence[torch.Tensor],
        raw: torch.Tensor,
        refs: Sequence[TensorRef],
        spacing: int = CHANGED_ONE_IN,
    ) -> None:
        self.bank = torch.stack(list(sets))
        size = self.bank.element_size()
        step = (refs[1].offset - refs[0].offset) // size if len(refs) > 1 else 0
        self._shape, self._stride, self._step = tuple(refs[0].shape), tuple(refs[0].stride), step
        span = 1 + sum((n - 1) * s for n, s in zip(self._shape, self._stride, strict=True))
        count = (len(refs) - 1) * step + span if 0 not in self._shape else 0
        self._elements = raw[refs[0].offset : refs[0].offset + count * size].view(self.bank.dtype)
        self._slots = self._elements.as_strided((len(refs), *self._shape), (step, *self._stride))
        numel = self.bank[0].numel()
        self._spacing = spacing
        self._starts = torch.arange(0, numel, spacing, device=raw.device)
        self._lengths = (numel - self._starts).clamp(max=spacing)

    @property
    def changes(self) -> bool:
        """Whether elements of it can be changed at all: an integer may be an index."""
        return self.bank.is_floating_point() and self.bank[0].numel() > 0

    def deal(self, chosen: torch.Tensor) -> None:
        """Put data set `chosen[i]` into slot i."""
        if self._slots.numel() * self.bank.element_size() <= GATHER_BYTES:
            self._slots.copy_(self.bank[chosen])
            return
        for slot, number in enumerate(chosen.tolist()):
            self._slots[slot].copy_(self.bank[number])

    def hide(self) -> None:
        """Zero in every slot."""
        self._slots.zero_()

    def draw_change(self, chosen: torch.Tensor, _slots: Sequence[int], generator: torch.Generator) -> Any:
        """One element of every `spacing`, anew for each slot."""
        flat = self.bank.reshape(-1)
        numel = self.bank[0].numel()
        device, starts = flat.device, self._starts
        shape = (len(chosen), len(starts))
        positions = starts + (torch.rand(shape, generator=generator, device=device) * self._lengths).long()
        positions = torch.minimum(positions, starts + self._lengths - 1)
        near = self._near_elements()
        apart = near // LARGEST_OF * torch.arange(LARGEST_OF, device=device)
        others = (torch.randint(near, (*shape, 1), generator=generator, device=device) + apart) % near
        first = positions // near * near + (chosen * numel)[:, None]
        found = flat[others + first[:, :, None]]
        largest, mean = found.amax(dim=2), found.mean(dim=2)
        share = BELOW_THE_LARGEST * torch.rand(shape, generator=generator, device=device)
        return Change(positions, largest - (largest - mean) * share.to(flat.dtype), self._places(positions))

    def _near_elements(self) -> int:
        """How many neighbouring elements a changed one is like."""
        count = 1
        for size in reversed(self._shape):
            count *= size
            if count >= NEAR_ELEMENTS:
                break
        return count

    def _places(self, positions: torch.Tensor) -> torch.Tensor:
        offsets, rest = torch.zeros_like(positions), positions
        for size, stride in zip(reversed(self._shape), reversed(self._stride), strict=True):
            offsets += rest % size * stride
            rest = rest // size
        slots = torch.arange(len(positions), device=positions.device)[:, None]
        return (offsets + slots * self._step).reshape(-1)

    def put(self, change: Any) -> None:
        """Make the change in shared memory."""
        self._elements[change.places] = change.values.reshape(-1)

    def take_back(self, change: Any, chosen: torch.Tensor) -> None:
        """Put what was dealt where it changed, which takes as long as the change."""
        numel = self.bank[0].numel()
        old = self.bank.reshape(-1)[(change.positions + (chosen * numel)[:, None]).reshape(-1)]
        self._elements[change.places] = old

    def bits(self, slot: int) -> torch.Tensor:
        """A copy of what lies in `slot`, contiguous, its last dimension in bytes."""
        return self._slots[slot].contiguous().view(torch.uint8)

    def changed(self, number: int, slot: int, change: Any) -> torch.Tensor:
        """A private copy of what lies in `slot`, which has data set `number`."""
        tensor = self.bank[number].clone()
        if change is not None:
            tensor.view(-1)[change.positions[slot]] = change.values[slot]
        return tensor

    def changed_rows(self, numbers: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor, change: Any) -> torch.Tensor:
        """Row `rows[i]` of what lies in slot `slots[i]`, which has data set `numbers[i]`; stacked."""
        gathered = self.bank[numbers, rows]
        if change is None:
            return gathered
        length = gathered[0].numel()
        starts = rows * length
        # The changed elements of a row are among those of the stretches that it lies in.
        within = torch.arange(-(-length // self._spacing) + 1, device=rows.device)
        stretches = (starts[:, None] // self._spacing + within).clamp(max=change.positions.shape[1] - 1)
        local = change.positions[slots[:, None], stretches] - starts[:, None]
        inside = (local >= 0) & (local < length)
        places = torch.arange(len(rows), device=rows.device)[:, None] * length + local
        gathered.view(-1)[places[inside]] = change.values[slots[:, None], stretches][inside]
        return gathered


class WholeInput(Input):
    """An input of which every element changes when a round begins."""

    def draw_change(self, chosen: torch.Tensor, slots: Sequence[int], generator: torch.Generator) -> Whole:
        """Each element that of one of two data sets, at random; for `slots` only."""
        others = (chosen + 1) % len(self.bank)
        return {slot: self._mixed(self.bank[chosen[slot]], self.bank[others[slot]], generator) for slot in slots}

    def _mixed(self, one: torch.Tensor, other: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        heads = torch.randint(2, one.shape, dtype=torch.int8, generator=generator, device=one.device)
        return torch.where(heads == 0, one, other)

    def put(self, change: Whole) -> None:
        for slot, values in change.items():
            self._slots[slot].copy_(values)

    def take_back(self, change: Whole, chosen: torch.Tensor) -> None:
        for slot in change:
            self._slots[slot].copy_(self.bank[chosen[slot]])

    def changed(self, number: int, slot: int, change: Whole | None) -> torch.Tensor:
        return change[slot] if change is not None and slot in change else self.bank[number]

    def changed_rows(
        self, numbers: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor, change: Whole | None
    ) -> torch.Tensor:
        places = zip(numbers.tolist(), slots.tolist(), rows.tolist(), strict=True)
        return torch.stack([self.changed(number, slot, change)[row] for number, slot, row in places])
