"""One input of a problem in all buffers of a case: the data set that each buffer holds, and what changes in it when a
round begins.

`SparseInput` changes one element of every stretch, `WholeInput` all elements; choose_changes.py says when each is
needed. Positions and values are drawn anew for each buffer; only the judge knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from harness.protocol.wire import TensorRef
from harness.timing.data import unpredictable

# A sparse change replaces one element of so many, if nothing else is asked for.
CHANGED_ONE_IN = 1024

# A new value is roughly the largest of LARGEST_OF elements sampled nearby: from the innermost dimensions, as many of
# them as it takes to have NEAR_ELEMENTS.
LARGEST_OF = 4
NEAR_ELEMENTS = 256

# A new value lies below that largest one by up to this share of the largest one's distance from the sampled mean. It
# must equal no other element of its row: a reference that sorts, or returns positions of the largest, orders equal
# elements as it likes.
BELOW_THE_LARGEST = 1 / 16

# Up to this many bytes one gather fills all buffers. Beyond it each buffer is copied by itself, since a gather needs a
# second copy of everything.
GATHER_BYTES = 64 << 20


class InputBuffers:
    """One input of the problem: its data sets, and its place in every buffer of the arena."""

    def __init__(self, sets: Sequence[torch.Tensor], raw: torch.Tensor, refs: Sequence[TensorRef]) -> None:
        """`raw` holds the arena's bytes; `refs` are the places, at equal distances and one for each buffer."""
        self.bank = torch.stack(list(sets))
        """All data sets, shape (sets, *shape)."""
        size = self.bank.element_size()
        self.shape, self.stride = tuple(refs[0].shape), tuple(refs[0].stride)
        self.step = (refs[1].offset - refs[0].offset) // size if len(refs) > 1 else 0
        """Elements from a buffer to the next."""
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        count = (len(refs) - 1) * self.step + span if 0 not in self.shape else 0
        self.elements = raw[refs[0].offset : refs[0].offset + count * size].view(self.bank.dtype)
        """Flat: all elements of the arena from the first of the first buffer on."""
        self.views = self.elements.as_strided((len(refs), *self.shape), (self.step, *self.stride))
        """What lies in the buffers, shape (buffers, *shape)."""

    @property
    def numel(self) -> int:
        """Elements of one data set."""
        return self.bank[0].numel()

    @property
    def can_change(self) -> bool:
        """Whether its elements may be changed: an integer may be an index."""
        return self.bank.is_floating_point() and self.numel > 0

    def fill(self, chosen: torch.Tensor) -> None:
        """Put data set `chosen[i]` into buffer i."""
        if self.views.numel() * self.bank.element_size() <= GATHER_BYTES:
            self.views.copy_(self.bank[chosen])
            return
        for buffer, number in enumerate(chosen.tolist()):
            self.views[buffer].copy_(self.bank[number])

    def zero(self) -> None:
        """Put zeros into every buffer."""
        self.views.zero_()

    def bits(self, buffer: int) -> torch.Tensor:
        """A copy of what lies in `buffer`, contiguous, its last dimension in bytes."""
        return self.views[buffer].contiguous().view(torch.uint8)


class PooledInput(Protocol):
    """One input of the problem, and how it changes when a round begins. A change is what `draw_change` returned; None
    stands for no change."""

    buffers: InputBuffers

    def draw_change(self, chosen: torch.Tensor, buffers: Sequence[int]) -> Any:
        """Draw a change for at least `buffers`; buffer i holds data set `chosen[i]`."""
        ...

    def put(self, change: Any) -> None:
        """Make the change in the arena."""
        ...

    def take_back(self, change: Any, chosen: torch.Tensor) -> None:
        """Restore the data sets where `change` is."""
        ...

    def changed(self, number: int, buffer: int, change: Any) -> torch.Tensor:
        """What lies in `buffer` once `change` is made: data set `number`, changed. Not to be written to."""
        ...

    def changed_rows(
        self, numbers: torch.Tensor, buffers: torch.Tensor, rows: torch.Tensor, change: Any
    ) -> torch.Tensor:
        """Row `rows[i]` of what lies in buffer `buffers[i]`, which holds data set `numbers[i]`; stacked."""
        ...


@dataclass(frozen=True)
class SparseChange:
    """Changed elements of one input in every buffer."""

    positions: torch.Tensor
    """Logical positions in the input, shape (buffers, count)."""
    values: torch.Tensor
    """New values, shape (buffers, count)."""
    places: torch.Tensor
    """Where they lie among `InputBuffers.elements`, shape (buffers * count,)."""


class SparseInput:
    """An input of which one element in `spacing` changes when a round begins."""

    def __init__(self, buffers: InputBuffers, spacing: int = CHANGED_ONE_IN) -> None:
        self.buffers = buffers
        self._elements = buffers.elements
        self._flat = buffers.bank.reshape(-1)
        self._spacing = spacing
        self._starts = torch.arange(0, buffers.numel, spacing, device=buffers.elements.device)
        self._lengths = (buffers.numel - self._starts).clamp(max=spacing)

    def draw_change(self, chosen: torch.Tensor, _buffers: Sequence[int]) -> SparseChange:
        """One element of every stretch of `spacing`, anew for each buffer."""
        positions = self._draw_positions(len(chosen))
        values = self._draw_values(positions, chosen)
        return SparseChange(positions, values, self._places(positions))

    def _draw_positions(self, buffers: int) -> torch.Tensor:
        """Shape (buffers, stretches)."""
        shape = (buffers, len(self._starts))
        return self._starts + unpredictable.integers(self._lengths, shape, self._flat.device)

    def _draw_values(self, positions: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """A large value of the neighbourhood for each of `positions`."""
        device, near = self._flat.device, self._near_elements()
        apart = near // LARGEST_OF * torch.arange(LARGEST_OF, device=device)[:, None, None]
        others = (unpredictable.integers(near, positions.shape, device) + apart) % near
        first = positions // near * near + (chosen * self.buffers.numel)[:, None]
        found = self._flat[others + first]
        largest, mean = found.amax(dim=0), found.mean(dim=0)  # over the outermost dimension, which a GPU does faster
        share = BELOW_THE_LARGEST * unpredictable.shares(positions.shape, device)
        return largest - (largest - mean) * share.to(self._flat.dtype)

    def _near_elements(self) -> int:
        """How many elements the neighbourhood of a changed one has."""
        count = 1
        for size in reversed(self.buffers.shape):
            count *= size
            if count >= NEAR_ELEMENTS:
                break
        return count

    def _places(self, positions: torch.Tensor) -> torch.Tensor:
        offsets, rest = torch.zeros_like(positions), positions
        for size, stride in zip(reversed(self.buffers.shape), reversed(self.buffers.stride), strict=True):
            offsets += rest % size * stride
            rest = rest // size
        buffers = torch.arange(len(positions), device=positions.device)[:, None]
        return (offsets + buffers * self.buffers.step).reshape(-1)

    def put(self, change: SparseChange) -> None:
        self._elements[change.places] = change.values.reshape(-1)

    def take_back(self, change: SparseChange, chosen: torch.Tensor) -> None:
        """Takes as long as the change did."""
        old = self._flat[(change.positions + (chosen * self.buffers.numel)[:, None]).reshape(-1)]
        self._elements[change.places] = old

    def changed(self, number: int, buffer: int, change: SparseChange | None) -> torch.Tensor:
        tensor = self.buffers.bank[number].clone()
        if change is not None:
            tensor.view(-1)[change.positions[buffer]] = change.values[buffer]
        return tensor

    def changed_rows(
        self, numbers: torch.Tensor, buffers: torch.Tensor, rows: torch.Tensor, change: SparseChange | None
    ) -> torch.Tensor:
        gathered = self.buffers.bank[numbers, rows]
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


WholeChange = dict[int, torch.Tensor]
"""All elements of one input, by buffer."""


class WholeInput:
    """An input of which every element changes when a round begins, to that of one of two data sets at random."""

    def __init__(self, buffers: InputBuffers) -> None:
        self.buffers = buffers
        self._bank, self._views = buffers.bank, buffers.views

    def draw_change(self, chosen: torch.Tensor, buffers: Sequence[int]) -> WholeChange:
        """For `buffers` only."""
        others = (chosen + 1) % len(self._bank)
        return {
            buffer: unpredictable.mixed(self._bank[chosen[buffer]], self._bank[others[buffer]]) for buffer in buffers
        }

    def put(self, change: WholeChange) -> None:
        for buffer, values in change.items():
            self._views[buffer].copy_(values)

    def take_back(self, change: WholeChange, chosen: torch.Tensor) -> None:
        for buffer in change:
            self._views[buffer].copy_(self._bank[chosen[buffer]])

    def changed(self, number: int, buffer: int, change: WholeChange | None) -> torch.Tensor:
        return change[buffer] if change is not None and buffer in change else self._bank[number]

    def changed_rows(
        self, numbers: torch.Tensor, buffers: torch.Tensor, rows: torch.Tensor, change: WholeChange | None
    ) -> torch.Tensor:
        places = zip(numbers.tolist(), buffers.tolist(), rows.tolist(), strict=True)
        return torch.stack([self.changed(number, buffer, change)[row] for number, buffer, row in places])


Changes = list[Any]
"""What changes in each input of the problem, as its `draw_change` returned it; None for one that does not change."""


@dataclass(frozen=True)
class Contents:
    """What the buffers hold: data set `chosen[i]` in buffer i, changed by `changes`."""

    chosen: torch.Tensor
    """Shape (buffers,), int64, on the judge's device."""
    numbers: list[int]
    """The same on the host."""
    changes: Changes

    def of_buffer(self, inputs: Sequence[PooledInput], buffer: int) -> list[torch.Tensor]:
        """What lies in one buffer, for each of `inputs`. Not to be written to."""
        number = self.numbers[buffer]
        return [t.changed(number, buffer, change) for t, change in zip(inputs, self.changes, strict=True)]
