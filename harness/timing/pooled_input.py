"""One input of a problem in all buffers of a case: what was dealt into them, and what changes there when a round begins.

Positions are drawn anew for each buffer, with values that nobody else knows; harness.timing.input_pool says why these.
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

# Up to this many bytes a deal is one gather; beyond it a copy for each buffer needs no second copy of everything.
GATHER_BYTES = 64 << 20


@dataclass(frozen=True)
class Change:
    """Elements of one input in every buffer: logical positions and new values, both of shape (buffers, count), and
    where they lie in the arena's elements, (buffers * count)."""

    positions: torch.Tensor
    values: torch.Tensor
    places: torch.Tensor


Whole = dict[int, torch.Tensor]
"""All of one input, by buffer."""


class Input:
    """One input of the problem: its data sets, and its place in every buffer. One element in `spacing` changes when a
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
        self._buffers = self._elements.as_strided((len(refs), *self._shape), (step, *self._stride))
        numel = self.bank[0].numel()
        self._spacing = spacing
        self._starts = torch.arange(0, numel, spacing, device=raw.device)
        self._lengths = (numel - self._starts).clamp(max=spacing)

    @property
    def changes(self) -> bool:
        """Whether elements of it can be changed at all: an integer may be an index."""
        return self.bank.is_floating_point() and self.bank[0].numel() > 0

    def fill(self, chosen: torch.Tensor) -> None:
        """Put data set `chosen[i]` into buffer i."""
        if self._buffers.numel() * self.bank.element_size() <= GATHER_BYTES:
            self._buffers.copy_(self.bank[chosen])
            return
        for buffer, number in enumerate(chosen.tolist()):
            self._buffers[buffer].copy_(self.bank[number])

    def hide(self) -> None:
        """Zero in every buffer."""
        self._buffers.zero_()

    def draw_change(self, chosen: torch.Tensor, _buffers: Sequence[int], generator: torch.Generator) -> Any:
        """One element of every `spacing`, anew for each buffer."""
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
        buffers = torch.arange(len(positions), device=positions.device)[:, None]
        return (offsets + buffers * self._step).reshape(-1)

    def put(self, change: Any) -> None:
        """Make the change in shared memory."""
        self._elements[change.places] = change.values.reshape(-1)

    def take_back(self, change: Any, chosen: torch.Tensor) -> None:
        """Put what was dealt where it changed, which takes as long as the change."""
        numel = self.bank[0].numel()
        old = self.bank.reshape(-1)[(change.positions + (chosen * numel)[:, None]).reshape(-1)]
        self._elements[change.places] = old

    def bits(self, buffer: int) -> torch.Tensor:
        """A copy of what lies in `buffer`, contiguous, its last dimension in bytes."""
        return self._buffers[buffer].contiguous().view(torch.uint8)

    def changed(self, number: int, buffer: int, change: Any) -> torch.Tensor:
        """A private copy of what lies in `buffer`, which has data set `number`."""
        tensor = self.bank[number].clone()
        if change is not None:
            tensor.view(-1)[change.positions[buffer]] = change.values[buffer]
        return tensor

    def changed_rows(
        self, numbers: torch.Tensor, buffers: torch.Tensor, rows: torch.Tensor, change: Any
    ) -> torch.Tensor:
        """Row `rows[i]` of what lies in buffer `buffers[i]`, which has data set `numbers[i]`; stacked."""
        gathered = self.bank[numbers, rows]
        if change is None:
            return gathered
        length = gathered[0].numel()
        starts = rows * length
        # The changed elements of a row are among those of the stretches that it lies in.
        within = torch.arange(-(-length // self._spacing) + 1, device=rows.device)
        stretches = (starts[:, None] // self._spacing + within).clamp(max=change.positions.shape[1] - 1)
        local = change.positions[buffers[:, None], stretches] - starts[:, None]
        inside = (local >= 0) & (local < length)
        places = torch.arange(len(rows), device=rows.device)[:, None] * length + local
        gathered.view(-1)[places[inside]] = change.values[buffers[:, None], stretches][inside]
        return gathered


class WholeInput(Input):
    """An input of which every element changes when a round begins."""

    def draw_change(self, chosen: torch.Tensor, buffers: Sequence[int], generator: torch.Generator) -> Whole:
        """Each element that of one of two data sets, at random; for `buffers` only."""
        others = (chosen + 1) % len(self.bank)
        return {
            buffer: self._mixed(self.bank[chosen[buffer]], self.bank[others[buffer]], generator) for buffer in buffers
        }

    def _mixed(self, one: torch.Tensor, other: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        heads = torch.randint(2, one.shape, dtype=torch.int8, generator=generator, device=one.device)
        return torch.where(heads == 0, one, other)

    def put(self, change: Whole) -> None:
        for buffer, values in change.items():
            self._buffers[buffer].copy_(values)

    def take_back(self, change: Whole, chosen: torch.Tensor) -> None:
        for buffer in change:
            self._buffers[buffer].copy_(self.bank[chosen[buffer]])

    def changed(self, number: int, buffer: int, change: Whole | None) -> torch.Tensor:
        return change[buffer] if change is not None and buffer in change else self.bank[number]

    def changed_rows(
        self, numbers: torch.Tensor, buffers: torch.Tensor, rows: torch.Tensor, change: Whole | None
    ) -> torch.Tensor:
        places = zip(numbers.tolist(), buffers.tolist(), rows.tolist(), strict=True)
        return torch.stack([self.changed(number, buffer, change)[row] for number, buffer, row in places])
