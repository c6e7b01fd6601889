"""In how many places a model's parameters lie while it is timed; see harness.worker.placement."""

from __future__ import annotations

# Less than this, in all, is a small part of any GPU's cache wherever it lies.
LEAST_BYTES = 1 << 20

# All places of a model together, of the room that its results have.
MOST_BYTES = 768 << 20


def count(nbytes: int) -> int:
    """How many places there are for parameters of so many bytes in all, at least one."""
    return max(1, MOST_BYTES // nbytes) if nbytes >= LEAST_BYTES else 1
