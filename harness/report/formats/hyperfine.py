"""What hyperfine's --export-json writes, for its scripts and for whatever reads it: times in seconds.

The format is BenchmarkResult in https://github.com/sharkdp/hyperfine/blob/master/src/benchmark/benchmark_result.rs.
`times` has a value a round, each the mean of the round's calls. `parameters` says what a time is of. hyperfine tells
the user's processor time from the system's; here they are counted together, so that `user` has both, and 0 where none
is counted, as on a GPU.
"""

from __future__ import annotations

import statistics
from typing import Any

from harness.report.encoding import encoded
from harness.report.times import Time, named
from harness.report.view import View
from harness.verdict import Results

_US_A_SECOND = 1e6


def render(results: Results, _view: View) -> str:
    """An object with the list `results`, which is empty where nothing was timed."""
    return encoded({"results": [_result(name, time) for name, time in named(results).items()]})


def _result(name: str, time: Time) -> dict[str, Any]:
    timing = time.timing
    times = [us / _US_A_SECOND for us in timing.samples_us or [timing.median_us]]
    return {
        "command": name,
        "mean": statistics.fmean(times),
        "stddev": statistics.stdev(times) if len(times) > 1 else None,
        "median": timing.median_us / _US_A_SECOND,
        "user": timing.processor.median_us / _US_A_SECOND if timing.processor else 0.0,
        "system": 0.0,
        "min": min(times),
        "max": max(times),
        "times": times,
        "exit_codes": [0] * len(times),
        "parameters": _parameters(time),
    }


def _parameters(time: Time) -> dict[str, str]:
    """Sorted by their names, as hyperfine does; those that say nothing are left out."""
    of = time.evaluation
    parameters = {
        "case": time.case.name,
        "device": of.device,
        "implementation": time.implementation,
        "kind": str(time.kind),
        "part": time.part,
        "problem": of.problem,
        "shape": time.case.shape,
        "submission": of.submission,
    }
    return {name: value for name, value in parameters.items() if value}
