"""Bencher Metric Format, for `bencher run --adapter json`: medians with their 95% intervals in nanoseconds.

The format is defined in https://bencher.dev/docs/reference/bencher-metric-format: the names of a benchmark and of a
measure, and the measure's `value`, `lower_value` and `upper_value`. The measure is Bencher's own `latency`, which is in
nanoseconds (https://bencher.dev/docs/how-to/track-custom-benchmarks). A captured call is a benchmark of its own.
"""

from __future__ import annotations

from harness.report.encoding import encoded
from harness.report.times import Time, named
from harness.report.view import View
from harness.verdict import Results

_NS_A_US = 1000


def render(results: Results, _view: View) -> str:
    """An object with a key for each time; empty where nothing was timed."""
    return encoded({name: {"latency": _metric(time)} for name, time in named(results).items()})


def _metric(time: Time) -> dict[str, float]:
    low_us, high_us = time.timing.interval_us
    return {
        "value": time.timing.median_us * _NS_A_US,
        "lower_value": low_us * _NS_A_US,
        "upper_value": high_us * _NS_A_US,
    }
