"""What github-action-benchmark reads as `customSmallerIsBetter`: medians in microseconds, for charts of many commits.

The format is BenchmarkResult in https://github.com/benchmark-action/github-action-benchmark/blob/master/src/extract.ts:
a list of `name`, `unit`, `value`, `range` and `extra`. `range` is how far the 95% interval reaches on its farther side.
The action itself refuses an empty list, which is what a run without times gives.
"""

from __future__ import annotations

from typing import Any

from harness.report.encoding import encoded
from harness.report.times import Time, named
from harness.report.view import View
from harness.verdict import Baseline, Results

# One unit throughout: the action compares values as they stand.
_UNIT = "us"


def render(results: Results, _view: View) -> str:
    """A list with an entry for each time; empty where nothing was timed."""
    return encoded([_entry(name, time) for name, time in named(results).items()])


def _entry(name: str, time: Time) -> dict[str, Any]:
    return {
        "name": name,
        "unit": _UNIT,
        "value": time.timing.median_us,
        "range": f"± {time.half_us:.3f}",
        "extra": "\n".join(_extra(time)),
    }


def _extra(time: Time) -> list[str]:
    """What the action shows beside a point, a line each."""
    timing, (low_us, high_us) = time.timing, time.timing.interval_us
    lines = [
        f"shape {time.case.shape}",
        f"95% interval {low_us:.3f} to {high_us:.3f} {_UNIT}",
        f"{len(timing.samples_us)} rounds of {timing.calls_per_round} calls",
    ]
    if isinstance(timing, Baseline) and timing.version:
        lines.append(timing.version)
    if not time.evaluation.is_ranked:
        lines.append("the submission is not ranked")
    return lines
