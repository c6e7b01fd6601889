"""The least time of a call: the bytes it must move, over the memory's bandwidth."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def bytes_min(*groups: Iterable[torch.Tensor]) -> int:
    """Bytes of all tensors, each counted once: inputs read, parameters read, outputs written."""
    return sum(tensor.numel() * tensor.element_size() for group in groups for tensor in group)


def floor_us(nbytes: int, bandwidth: float) -> float:
    """Microseconds to move `nbytes` at `bandwidth` bytes a second."""
    return nbytes / bandwidth * 1e6


def impossible_us(read_bytes: int, written_bytes: int, calls: int, cache_bytes: int, bandwidth: float) -> float:
    """Microseconds below which no call can be at `bandwidth` bytes a second. Parameters may stay in the cache. It may
    hold some of a round's inputs when it begins, since parts of them were just changed, and its last results."""
    moved_bytes = max(0, calls * read_bytes - cache_bytes) + max(0, calls * written_bytes - cache_bytes)
    return moved_bytes / calls / bandwidth * 1e6
