"""Shared memory that the judge owns: parameters and inputs for workers to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from harness import layouts
from harness.device.views import clear_between, span, view_bytes
from harness.protocol.wire import ArenaRef, TensorRef

# cudaMalloc aligns to this; tensors keep the alignment that an allocation of their own would have.
ALIGNMENT = 256


class Backing(Protocol):
    """Where an arena's bytes come from."""

    def synchronize(self) -> None:
        """Wait until copies into the arena have happened: other processes read it next."""
        ...

    def provide(self, nbytes: int) -> tuple[torch.Tensor, ArenaRef]:
        """At least `nbytes` as a uint8 tensor of the judge, and the reference that workers open."""
        ...


class Arena:
    """Tensors laid out one after the other in one piece of shared memory."""

    def __init__(self, backing: Backing) -> None:
        self._backing = backing
        self.raw = torch.empty(0, dtype=torch.uint8)
        """All of it, as the judge sees it."""
        self.ref = ArenaRef(nbytes=0)

    def lay_out(self, tensors: Sequence[tuple[torch.Tensor, str]]) -> list[TensorRef]:
        """Copy each (tensor, layout) in; what was laid out before is gone."""
        refs = []
        end = 0
        for tensor, layout in tensors:
            start = -(-end // ALIGNMENT) * ALIGNMENT
            offset = start + layouts.elements_before(layout) * tensor.element_size()
            strides = layouts.strides(tuple(tensor.shape), layout)
            refs.append(
                TensorRef(
                    offset=offset,
                    shape=list(tensor.shape),
                    stride=list(strides),
                    dtype=str(tensor.dtype).removeprefix("torch."),
                )
            )
            end = offset + span(tensor.shape, strides) * tensor.element_size()
        if end > self.raw.numel() or not self.raw.numel():  # what is empty lies somewhere, too
            self.raw, self.ref = self._backing.provide(max(end, 1))
        for (tensor, _), ref in zip(tensors, refs, strict=True):
            clear_between(self.view(ref))
            self.write(ref, tensor)
        self._backing.synchronize()
        return refs

    def write(self, ref: TensorRef, tensor: torch.Tensor) -> None:
        """Copy `tensor` to the place of `ref`; where a stride is 0 its first element stands for all."""
        stored = tuple(slice(None) if step else slice(0, 1) for step in ref.stride)
        self.view(ref)[stored].copy_(tensor[stored])

    def view(self, ref: TensorRef) -> torch.Tensor:
        """The judge's view of a tensor in the arena."""
        return view_bytes(self.raw, ref)
