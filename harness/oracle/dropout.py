"""Whether the places that a dropout emptied look like independent draws.

Every test is exact: it counts events that are binomial when elements are dropped independently with
probability p, whatever the size of the data. Neighbours are taken in disjoint pairs, so that pairs are
independent of each other, and the event is that both have the rarer of the two fates. Two calls are laid
upon each other at every shift: a mask that is cut from a table shows itself where the cuts overlap. The
p-values share one false-alarm rate equally (Bonferroni), so that an honest mask is called unlikely at most
that often.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch

# How often all cases of one evaluation together may reject an honest submission.
FALSE_ALARM_RATE = 1e-6

# Distances at which kernels repeat themselves when their counters overlap: within the four numbers of a Philox
# call, a thread's pack, a warp, a block; and the length of a row. Beside these some are drawn that nobody can know.
LAGS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
OTHER_LAGS = range(5, 33)
DRAWN_LAGS = 32

# So many elements of a mask tell at these others: what repeats itself does so everywhere. Where counters carry it need
# not, and LAGS are for that.
TOLD_BY = 1 << 20


def dropped(got: torch.Tensor, kept: torch.Tensor, p: float, generator: torch.Generator) -> torch.Tensor:
    """Which elements of an output a dropout emptied (bool), from what it `got` and what it is where all are `kept`.
    Where that is 0, as behind a ReLU, nothing shows: an independent draw of `generator` stands there."""
    drawn = torch.rand(kept.shape, generator=generator, device=kept.device) < p
    return torch.where(kept == 0, drawn, got == 0)


def unlikely(masks: Sequence[np.ndarray], p: float, false_alarm_rate: float, seed: int = 0) -> str:
    """A sentence about what honest masks show less often than `false_alarm_rate`, or nothing.

    `masks` (bool, True where dropped, all of one shape) are of calls that must be independent. `seed` draws distances
    up to the largest of LAGS at which pairs are looked at beside those.
    """
    tests = list(_tests(masks, p, random.Random(seed).sample(range(33, max(LAGS)), DRAWN_LAGS)))
    what, value = min(tests, key=lambda test: test[1])
    if value >= false_alarm_rate / len(tests):
        return ""
    return f"{what} (probability below {max(value, 1e-300):.1g} for independent elements dropped with p = {p:g})"


def _tests(masks: Sequence[np.ndarray], p: float, drawn_lags: Sequence[int]) -> Iterator[tuple[str, float]]:
    """What each test looks at, and its p-value."""
    dropped = np.stack([mask.reshape(-1) for mask in masks])
    total = int(dropped.sum())
    yield f"{total:,} of {dropped.size:,} elements were dropped", float(p_value(np.array(total), dropped.size, p))
    length = masks[0].shape[-1] if masks[0].ndim else 1
    rows = dropped.reshape(-1, length)
    for name, axis in (("column", 0), ("row", 1)):
        values = p_value(rows.sum(axis), rows.shape[axis], p)
        worst = int(values.argmin())
        where = worst % (len(rows) // len(masks)) if name == "row" else worst
        count = int(rows.sum(axis)[worst])
        yield (
            f"{count:,} of {rows.shape[axis]:,} elements of {name} {where} were dropped",
            float(min(1.0, values[worst] * values.size)),
        )
    rare, chance = (dropped, p) if p <= 0.5 else (~dropped, 1 - p)
    for lag in sorted({*LAGS, *OTHER_LAGS, *drawn_lags, length}):
        size = rare.shape[1] if lag in (*LAGS, length) else min(rare.shape[1], TOLD_BY)
        if 2 * lag > size:
            continue
        pairs = rare[:, : size // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
        yield f"elements {lag} apart share their fate", _both(pairs[:, 0], pairs[:, 1], chance)
    at_every_shift = _Shifted([mask[:TOLD_BY] for mask in rare], chance)
    for first in range(len(masks)):
        for second in range(first + 1, len(masks)):
            yield f"calls {first} and {second} share their mask", _both(rare[first], rare[second], chance)
            shift, value = at_every_shift.closest(first, second)
            yield f"call {second} has the mask of call {first}, {shift:+,} elements away", value


def _both(a: np.ndarray, b: np.ndarray, chance: float) -> float:
    return float(p_value(np.array((a & b).sum()), a.size, chance**2))


class _Shifted:
    """Masks (bool, shape (n,), True where rare) laid upon each other. At one shift no element is in two pairs, so the
    count of pairs that are both rare is binomial."""

    def __init__(self, masks: Sequence[np.ndarray], chance: float) -> None:
        from scipy import fft  # late, as below

        self._fft, self._chance, self._length = fft, chance, len(masks[0])
        self._size = fft.next_fast_len(2 * self._length - 1, real=True)
        self._spectra = [fft.rfft(mask.astype(np.float64), self._size) for mask in masks]

    def closest(self, first: int, second: int) -> tuple[int, float]:
        """The shift at which chance is exceeded most, and the p-value for the most unlikely of all shifts.

        The shift is chosen by the difference of square roots, which varies as much at all shifts (Bartlett 1936); the
        p-value of the one is exact."""
        both = self._fft.irfft(self._spectra[first].conj() * self._spectra[second], self._size)
        shifts = np.arange(1 - self._length, self._length)
        counts, pairs = np.rint(both[shifts]).clip(0), self._length - np.abs(shifts)
        most = int((np.sqrt(counts) - np.sqrt(pairs) * self._chance).argmax())
        value = float(p_value(counts[most], int(pairs[most]), self._chance**2))
        return int(shifts[most]), min(1.0, value * len(shifts))


def p_value(count: np.ndarray, trials: int, p: float) -> np.ndarray:
    """Of `count` successes in `trials`, two-sided: a value so small has at most that probability."""
    from scipy.special import bdtr, bdtrc  # late: it takes a third of a second, and scipy.stats a second

    tails = np.minimum(bdtr(count, trials, p), bdtrc(count - 1, trials, p))
    return np.minimum(1.0, 2 * tails)
