"""How fast a device's memory is: what copies, readings and sums reach out of a cold cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

SAMPLES = 7


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second. `copy` is the median of large copies, of which read and written bytes both count; `best` is the
    most that any copy, reading or sum of two arrays reached."""

    copy: float
    best: float

    def or_better(self, other: Bandwidth) -> Bandwidth:
        """The same with what `other` reached, where that is more: what keeps the memory busy only ever slows it."""
        return Bandwidth(self.copy, max(self.best, other.best))


def measure(
    device: torch.device, nbytes: int, flush_bytes: int, elapsed_s: Callable[[Callable[[], object]], float]
) -> Bandwidth:
    """Copy, read and add `nbytes` several times, each time after `flush_bytes` were written elsewhere. `elapsed_s` runs
    something and says how long it took.

    A copy through a processor's cache moves three bytes for the two that are counted, since the target is read before
    it is written. A kernel that writes past the cache, or hardly writes, is only held to what a reading reaches."""
    source = torch.ones(nbytes // 4, device=device)
    target = torch.zeros_like(source)
    flush = torch.empty(flush_bytes, dtype=torch.uint8, device=device)
    works: dict[str, tuple[int, Callable[[], object]]] = {
        "copy": (2 * nbytes, lambda: target.copy_(source)),
        "read": (nbytes, source.view(torch.float64).sum),
        "add": (3 * nbytes, lambda: target.add_(source)),
    }
    reached: dict[str, list[float]] = {name: [] for name in works}
    for sample in range(SAMPLES):
        for name, (moved_bytes, work) in works.items():
            flush.fill_(sample)
            reached[name].append(moved_bytes / elapsed_s(work))
    return Bandwidth(float(np.median(reached["copy"])), max(max(samples) for samples in reached.values()))
