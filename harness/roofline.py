"""The least time that a call can take: what it must move, over what the memory can move."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def bytes_min(*groups: Iterable[torch.Tensor]) -> int:
    """Bytes of all tensors, each counted once: inputs read, parameters read, outputs written."""
    return sum(tensor.numel() * tensor.element_size() for group in groups for tensor in group)


def floor_us(nbytes: int, bandwidth: float) -> float:
    """Microseconds to move `nbytes` at `bandwidth` bytes a second."""
    return nbytes / bandwidth * 1e6
