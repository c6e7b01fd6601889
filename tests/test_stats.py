"""Intervals cover what they should, and equal times are not called different."""

import numpy as np
import pytest
import scipy.stats

from harness.timing import stats


def test_the_interval_of_a_median_covers_it_19_times_in_20():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        low, high = stats.median_interval(rng.lognormal(size=25))
        hits += low <= 1.0 <= high  # the median of a standard lognormal
    assert hits / 400 >= 0.93


@pytest.mark.parametrize("count", [6, 7, 8, 9, 10, 25, 64, 101])
def test_the_interval_of_a_median_is_scipys(count):
    samples = np.random.default_rng(count).normal(size=count)
    interval = scipy.stats.quantile_test(samples, p=0.5).confidence_interval(0.95)
    assert stats.median_interval(samples) == (interval.low, interval.high)


def test_too_few_samples_have_no_interval():
    with pytest.raises(ValueError, match="6"):
        stats.median_interval([1.0] * 5)


def test_copies_do_not_differ_and_a_tenth_does():
    rng = np.random.default_rng(1)
    base = rng.normal(100, 1, 40)
    assert not stats.speedup(base, base + rng.normal(0, 1, 40)).differs
    faster = stats.speedup(base, base * 0.9)
    assert faster.differs
    assert faster.ratio == pytest.approx(1 / 0.9)


def test_rounds_are_compared_in_pairs():
    """A machine that drifts by a factor of three slows both, and the ratio stays sharp."""
    drift = np.linspace(1, 3, 40)
    ratio = stats.speedup(200 * drift, 100 * drift)
    assert ratio.interval == pytest.approx((2.0, 2.0))


def test_the_geometric_mean_of_opposite_ratios_is_one():
    rng = np.random.default_rng(2)
    a, b = rng.normal(100, 1, 30), rng.normal(200, 2, 30)
    mean = stats.geomean_speedup([(a, b), (b, a)])
    assert mean.ratio == pytest.approx(1.0)
    assert not mean.differs
