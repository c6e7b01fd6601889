"""How fast a device's memory is: copies and reads out of a cold cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

SAMPLES = 7


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second. `copy` is the median of large copies, of which read and written bytes both count; `best` is the
    most that any copy or any reading reached."""

    copy: float
    best: float

    def or_better(self, other: Bandwidth) -> Bandwidth:
        """The same with what `other` reached, where that is more: what keeps the memory busy only ever slows it."""
        return Bandwidth(self.copy, max(self.best, other.best))


def measure(
    device: torch.device, nbytes: int, flush_bytes: int, elapsed_s: Callable[[Callable[[], object]], float]
) -> Bandwidth:
    """Copy and read `nbytes` several times, each time after `flush_bytes` were written elsewhere. `elapsed_s` runs
    something and says how long it took.

    A copy through a processor's cache moves three bytes for the two that are counted, since the target is read before
    it is written. A kernel that writes past the cache, or hardly writes, is only held to what a reading reaches."""
    source = torch.ones(nbytes // 4, device=device)
    target = torch.zeros_like(source)
    flush = torch.empty(flush_bytes, dtype=torch.uint8, device=device)
    copies, reads = [], []
    for sample in range(SAMPLES):
        flush.fill_(sample)
        copies.append(2 * nbytes / elapsed_s(lambda: target.copy_(source)))
        flush.fill_(sample)
        reads.append(nbytes / elapsed_s(source.sum))
    return Bandwidth(float(np.median(copies)), max(*copies, *reads))
