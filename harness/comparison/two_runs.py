"""Whether two runs that were not interleaved differ, from the rounds of both.

A run's rounds scatter, and two runs of the same thing differ by more than their rounds explain. The first is what a
test of two samples is for: Yuen's, of means without the fifth of the values at either end (Yuen 1974, Biometrika 61,
165-170; scipy.stats.ttest_ind with `trim`), which asks for neither equal variances nor the absence of outliers. The
second is a floor: the hypothesis that a test has to refute is not that the two are equal, but that they differ by the
floor at most (a minimum-effect test: Murphy and Myors 1999, J. Applied Psychology 84, 234-248). All is done with
logarithms of times, whose differences are ratios.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

CONFIDENCE = 0.95

# The chance that anything at all is called different in a comparison of a submission with itself is at most this.
LEVEL = 1 - CONFIDENCE

# How surely a difference of `smallest_seen` is found.
POWER = 0.8

TRIMMED = 0.2

# Fewer rounds than this leave nothing between the trimmed ends to take a variance from.
MIN_ROUNDS = 4


@dataclass(frozen=True)
class Shift:
    """An estimate of the logarithm of a ratio, from rounds."""

    log: float
    error: float
    """Its standard error."""
    freedom: float
    """Degrees of freedom of that (Welch and Satterthwaite)."""
    floor: float
    """A logarithm: a difference up to this is none."""

    @property
    def p(self) -> float:
        """The chance of an estimate so far beyond the floor where the ratio lies within it."""
        beyond = abs(self.log) - self.floor
        if not self.error:
            return 0.0 if beyond > 0 else 1.0
        return float(min(1.0, 2 * special.stdtr(self.freedom, -beyond / self.error)))

    @property
    def interval(self) -> tuple[float, float]:
        """95%, of this shift alone, of the logarithm."""
        reach = self.error * _quantile(LEVEL / 2, self.freedom)
        return self.log - reach, self.log + reach

    def smallest_seen(self, tests: int) -> float:
        """A logarithm: so large a difference is found with POWER where it is one of so many tests, by the strictest of
        Holm's levels. The usual sum of quantiles, as in Cohen's Statistical Power Analysis (1988), section 2.4."""
        quantiles = (_quantile(share, self.freedom) for share in (LEVEL / 2 / tests, 1 - POWER))
        return self.floor + self.error * sum(quantiles)


def shift(a: Sequence[float], b: Sequence[float], floor: float) -> Shift:
    """By how much the logarithms `a` are larger than `b`. Raises ValueError for fewer than MIN_ROUNDS of either."""
    if min(len(a), len(b)) < MIN_ROUNDS:
        raise ValueError(f"{min(len(a), len(b))} rounds give no variance; {MIN_ROUNDS} do")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # all values equal: no variance, which is looked after below
        found = stats.ttest_ind(a, b, equal_var=False, trim=TRIMMED)
        low, high = found.confidence_interval(CONFIDENCE)
    log = float(stats.trim_mean(a, TRIMMED) - stats.trim_mean(b, TRIMMED))
    freedom = float(found.df)
    if not math.isfinite(freedom) or not math.isfinite(low):
        return Shift(log, 0.0, float(len(a) + len(b) - 2), floor)
    return Shift(log, float(high - low) / 2 / _quantile(LEVEL / 2, freedom), freedom, floor)


def _quantile(above: float, freedom: float) -> float:
    """What Student's t exceeds with the probability `above`. scipy.stats.t gives the same in forty times as long."""
    return -float(special.stdtrit(freedom, above))


def mean(shifts: Sequence[Shift]) -> Shift:
    """The mean of independent shifts. Its floor is the mean of theirs: as if a run moved all of them the same way."""
    count = len(shifts)
    variances = [(s.error / count) ** 2 for s in shifts]
    total = sum(variances)
    parts = sum(variance**2 / s.freedom for variance, s in zip(variances, shifts, strict=True))
    freedom = total**2 / parts if parts else sum(s.freedom for s in shifts)
    return Shift(sum(s.log for s in shifts) / count, math.sqrt(total), freedom, sum(s.floor for s in shifts) / count)


def which_differ(shifts: Sequence[Shift]) -> list[bool]:
    """Those that differ, by Holm's correction (1979, Scandinavian J. Statistics 6, 65-70): the chance of any that does
    not is LEVEL at most, however the shifts depend on each other."""
    differ = [False] * len(shifts)
    for rank, place in enumerate(sorted(range(len(shifts)), key=lambda place: shifts[place].p)):
        if shifts[place].p > LEVEL / (len(shifts) - rank):
            break
        differ[place] = True
    return differ
