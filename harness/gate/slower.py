"""Whether a submission is slower than a baseline of the same run: both were timed in the same rounds, in turn.

The interval of the ratio is that of paired rounds (harness.timing.stats.speedup). How much the same code may differ in
this run, on this host, is known from the baseline's copy, a second process with the same source: the noise of a case is
how far the interval of that ratio reaches from 1. It is at least what processes of one source differ by on a quiet
machine (harness.comparison.floors), which one copy may not show. A case is slower when the whole interval lies beyond
the noise.

Rounds of a usual run are few, so that its interval may hold both "as fast" and "5% slower". Such a run only raises a
suspicion: its median lies beyond the floor. Another run with fresh data and many rounds decides. Times that the judge
itself doubts raise none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from harness.comparison.doubts import doubt_of
from harness.comparison.floors import floor_for, is_launch_bound
from harness.gate.values import Slower
from harness.timed import timings_of
from harness.timing.stats import speedup
from harness.verdict import Accepted, Baseline, Evaluation


def slower_than(evaluation: Evaluation, best: str, copy: str) -> tuple[Slower, ...]:
    """The cases on which it is slower than the baseline `best`, whose copy is the baseline `copy`."""
    compared = _compared(evaluation, best, copy)
    return tuple(c for c, _ in compared if math.log(c.speed.interval[1]) < -math.log1p(c.noise))


def suspected(evaluation: Evaluation, best: str, copy: str) -> tuple[Slower, ...]:
    """The cases on which its median is slower than the baseline's by more than the floor, whatever the interval."""
    return tuple(c for c, floor in _compared(evaluation, best, copy) if math.log(c.speed.ratio) < -floor)


def _compared(evaluation: Evaluation, best: str, copy: str) -> Iterator[tuple[Slower, float]]:
    """What both were timed on, each with its floor, a difference of logarithms."""
    if not isinstance(evaluation, Accepted):
        return
    on_cpu = evaluation.device == "cpu"
    for case in evaluation.cases:
        for part, kind, timing in timings_of(case):
            against = timing.baselines.get(best)
            if part or against is None or doubt_of(evaluation, case.name, part, kind):
                continue
            training = bool(getattr(case, "parts", None))
            launch_bound = any(is_launch_bound(t, training=training) for t in (timing, against)) and kind == "called"
            shorter_us = min(timing.median_us, against.median_us)
            floor = floor_for(shorter_us, on_cpu=on_cpu, launch_bound=launch_bound and not on_cpu)
            noise = max(floor, _reach(against, timing.baselines.get(copy)))
            yield Slower(case.name, kind, against.speedup, math.expm1(noise)), floor


def doubted(evaluation: Evaluation) -> tuple[str, ...]:
    """The cases whose times the judge doubts, so that nothing is said of them, each with why."""
    return tuple(
        f"'{case.name}': {doubt}"
        for case in evaluation.cases
        for part, kind, _ in timings_of(case)
        if not part and (doubt := doubt_of(evaluation, case.name, part, kind))
    )


def _reach(one: Baseline, other: Baseline | None) -> float:
    """How far the interval of the logarithm of the ratio of two copies reaches from 0; 0 where there is one."""
    if other is None or len(one.samples_us) != len(other.samples_us):
        return 0.0
    return max(abs(math.log(bound)) for bound in speedup(one.samples_us, other.samples_us).interval)


def repeated(suspects: Sequence[Slower], second: Sequence[Slower]) -> tuple[Slower, ...]:
    """Those slower in the second run that the first had suspected."""
    known = {(slower.case, slower.kind) for slower in suspects}
    return tuple(slower for slower in second if (slower.case, slower.kind) in known)


def has_times_of(evaluation: Evaluation, baseline: str) -> bool:
    """Whether the baseline was timed beside it, on any case."""
    return any(baseline in timing.baselines for case in evaluation.cases for _, _, timing in timings_of(case))
