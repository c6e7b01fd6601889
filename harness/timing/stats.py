"""Medians and ratios of medians, with confidence intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from harness.verdict import Speedup

CONFIDENCE = 0.95

# The smallest and the largest of n samples enclose the median with probability 1 - 2 * 0.5**n, which is below 95% for
# fewer than six: there is no interval of that confidence.
MIN_SAMPLES = 6

BOOTSTRAP_RESAMPLES = 2000


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Distribution-free 95% confidence interval of the median, from order statistics.

    The binomial interval of Conover, Practical Nonparametric Statistics (1999), section 3.2: the number B of samples
    below the median is binomial (n, 1/2), so the k-th smallest and the k-th largest enclose it with probability
    1 - 2 P(B < k). scipy.stats.quantile_test returns the same (a test compares them), but importing it takes one of
    the few seconds that an evaluation has. Raises ValueError for fewer than MIN_SAMPLES samples.
    """
    n = len(samples)
    if n < MIN_SAMPLES:
        raise ValueError(f"{n} samples cannot give a 95% interval; {MIN_SAMPLES} can")
    tail = (1 - CONFIDENCE) / 2
    below = itertools.accumulate(math.comb(n, k) / 2**n for k in range(n))  # P(B <= k)
    outside = sum(1 for _ in itertools.takewhile(lambda probability: probability <= tail, below))
    ordered = np.sort(np.asarray(samples))
    return float(ordered[outside - 1]), float(ordered[n - outside])


def relative_half_width(samples: Sequence[float]) -> float:
    """Half the width of the median's interval over the median: how precisely a time is known."""
    low, high = median_interval(samples)
    return (high - low) / 2 / float(np.median(samples))


def _log_ratio_resamples(
    baseline: Sequence[float], submission: Sequence[float], rng: np.random.Generator
) -> np.ndarray:
    """Bootstrap distribution of log(median baseline / median submission), shape (BOOTSTRAP_RESAMPLES,). Rounds are
    resampled in pairs."""
    pairs = np.stack([np.asarray(baseline), np.asarray(submission)])
    picks = rng.integers(0, pairs.shape[1], size=(BOOTSTRAP_RESAMPLES, pairs.shape[1]))
    medians = np.median(pairs[:, picks], axis=2)
    return np.log(medians[0]) - np.log(medians[1])


def _interval(log_ratios: np.ndarray) -> tuple[float, float]:
    """The percentile interval of the ratio."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(log_ratios, [tail, 1 - tail])
    return float(np.exp(low)), float(np.exp(high))


def speedup(baseline: Sequence[float], submission: Sequence[float]) -> Speedup:
    """Ratio of medians with a paired percentile-bootstrap interval (Efron and Tibshirani 1993, ch. 13).

    The two sequences hold the times of the same rounds in the same order: when the machine slows down for a while, it
    slows both.
    """
    ratio = float(np.median(baseline) / np.median(submission))
    resamples = _log_ratio_resamples(baseline, submission, np.random.default_rng(0))
    return Speedup(ratio=ratio, interval=_interval(resamples))


def geomean_speedup(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Speedup:
    """Geometric mean over cases of the ratios of medians; each pair is (baseline, submission) samples."""
    rng = np.random.default_rng(0)
    ratios = [float(np.median(b) / np.median(s)) for b, s in pairs]
    resamples = np.mean([_log_ratio_resamples(b, s, rng) for b, s in pairs], axis=0)
    return Speedup(ratio=math.exp(float(np.mean(np.log(ratios)))), interval=_interval(resamples))
