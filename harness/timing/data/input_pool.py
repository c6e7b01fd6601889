"""The inputs of timed rounds: filled into the buffers before a round, and changed when it begins.

Before each set of rounds every buffer gets one of a few data sets, at random. When a round begins, secret elements of
all inputs change (harness.timing.data.choose_changes says which). No call sees inputs that were seen before: what was
computed earlier, in another buffer, in another round or before the round began, belongs to other data.
harness.timing.data.expected_rounds computes afterwards what the calls must have returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from harness.device.base import Device
from harness.timing.data import unpredictable
from harness.timing.data.pooled_input import Changes, Contents, PooledInput


class InputPool:
    """Fills the arena's buffers, and changes them when a round begins."""

    def __init__(
        self,
        device: Device,
        inputs: Sequence[PooledInput],
        buffer_count: int,
        set_count: int,
        early: int = 0,
    ) -> None:
        """There are `set_count` data sets. Contenders work on the first `early` inputs of a buffer before the clock
        starts: these do not change when a round begins, and the others are not there before `fill_late`."""
        self._device = device
        self._inputs = inputs
        self._early = early
        self.buffer_count, self._set_count = buffer_count, set_count
        self._contents = Contents(
            torch.zeros(buffer_count, dtype=torch.long, device=device.torch_device),
            [0] * buffer_count,
            [None] * len(inputs),
        )
        self._flush = torch.empty(device.flush_bytes, dtype=torch.uint8, device=device.torch_device)

    @property
    def changes_nothing(self) -> bool:
        """Whether no input can be changed when a round begins."""
        return not any(tensor.buffers.can_change for tensor in self._inputs[self._early :])

    @property
    def has_late_part(self) -> bool:
        """Whether contenders work on some inputs before the clock starts, without the others."""
        return self._early > 0

    def fill(self) -> None:
        """Put data sets into buffers at random."""
        chosen = unpredictable.integers(self._set_count, (self.buffer_count,), self._device.torch_device)
        for tensor in self._inputs:
            tensor.buffers.fill(chosen)
        self._contents = Contents(chosen, chosen.tolist(), [None] * len(self._inputs))

    def hide_late(self) -> None:
        """Zero the inputs that are not `early`, in every buffer."""
        for tensor in self._inputs[self._early :]:
            tensor.buffers.zero()
        self._device.synchronize()

    def fill_late(self) -> None:
        """Put the inputs that are not `early` into the buffers, once the early part has been worked on."""
        late = self._inputs[self._early :]
        for tensor in late:
            tensor.buffers.fill(self._contents.chosen)
        changes = self._contents.changes[: self._early] + [None] * len(late)
        self._contents = replace(self._contents, changes=changes)

    def prepare(self, buffers: Sequence[int]) -> Contents:
        """Undo the last round's changes, flush the cache, and draw what a round on some of `buffers` will change: what
        the buffers hold once `change` has made it so."""
        chosen = self._contents.chosen
        changes: Changes = []
        for position, (tensor, last) in enumerate(zip(self._inputs, self._contents.changes, strict=True)):
            if last is not None:
                tensor.take_back(last, chosen)
            changing = position >= self._early and tensor.buffers.can_change
            changes.append(tensor.draw_change(chosen, buffers) if changing else None)
        self._contents = replace(self._contents, changes=changes)
        self._flush.fill_(self._contents.numbers[0] + 1)
        self._device.synchronize()
        return self._contents

    def change(self, contents: Contents) -> None:
        """Make the changes that `prepare` drew, and wait until they are in memory. The clock runs meanwhile."""
        for tensor, change in zip(self._inputs, contents.changes, strict=True):
            if change is not None:
                tensor.put(change)
        self._device.synchronize()

    def written_by_others(self, buffers: Iterable[int]) -> bool:
        """Whether anybody but the judge wrote into the inputs of one of `buffers` since they were filled."""
        return any(
            not torch.equal(tensor.buffers.bits(buffer), expected.view(torch.uint8))
            for buffer in buffers
            for tensor, expected in zip(self._inputs, self._contents.of_buffer(self._inputs, buffer), strict=True)
            if expected.dim() and expected.numel()
        )
