"""Where a model's parameters lie while it is timed: elsewhere in each round.

A kernel that reads large parameters again and again finds more or less of them in the GPU's cache, by their physical
addresses. On an H100 the same calls of LayerNorm with a weight and a bias of 16.8 MB each took 241 to 254 µs by where
these two lay, and as long again for the same place; the places of inputs and outputs made no difference. A process that
keeps its parameters in one place measures that place in all its rounds, and no interval shows it.

So they move between rounds, outside the clock, as `Module.to` moves them: a parameter stays the same object and gets
other memory. Old places keep their values, for who holds on to a view of them.
"""

from __future__ import annotations

import random

import torch

from harness.protocol import places


class Placement:
    """The places of a model's parameters and buffers, among which they move."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._tensors = [t for t in (*model.parameters(), *model.buffers()) if _is_movable(t)]
        self._most = places.count(sum(t.numel() * t.element_size() for t in self._tensors))
        self._places = [[t.data for t in self._tensors]]
        self._random = random.SystemRandom()

    def move(self) -> bool:
        """Move all to a place where they have not been or, once there is no room for another, to any of those before.
        Whether what holds their addresses has to be made anew."""
        if self._most == 1:
            return False
        for tensor, memory in zip(self._tensors, self._next(), strict=True):
            if memory.data_ptr() != tensor.data_ptr():
                memory.copy_(tensor.data)
                tensor.data = memory
        return True

    def _next(self) -> list[torch.Tensor]:
        if len(self._places) == self._most:
            return self._random.choice(self._places)
        self._places.append([torch.empty_like(tensor.data) for tensor in self._tensors])
        return self._places[-1]


def _is_movable(tensor: torch.Tensor) -> bool:
    """Whether it is a plain tensor that memory of the same strides can be put under."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and torch.empty_like(tensor.data, device="meta").stride() == tensor.stride()
