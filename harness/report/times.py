"""Every time that results hold, one by one and with a name, for formats that list times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from harness.store.pairs import SHOWN_DIGITS
from harness.timed import Kind, timings_of
from harness.verdict import Accepted, CasePassed, Results, Timing, reach


@dataclass(frozen=True)
class Time:
    """One implementation's time for one call."""

    evaluation: Accepted
    case: CasePassed
    part: str
    """`forward` or `backward` of a training step, timed alone; empty for the whole call."""
    kind: Kind
    baseline: str
    """Empty for the submission itself."""
    timing: Timing

    @property
    def implementation(self) -> str:
        return self.baseline or self.evaluation.submission

    @property
    def name(self) -> str:
        """The same in every run: what follows times from run to run knows them by it."""
        of = self.evaluation
        parts = [of.problem, of.device, of.submission, self.case.name, self.part]
        parts += [self.kind] if self.kind is Kind.CAPTURED else []
        name = "/".join(filter(None, parts))
        return f"{name}: {self.baseline}" if self.baseline else name

    @property
    def half_us(self) -> float:
        """How far the 95% interval reaches from the median, on the farther side."""
        return reach(self.timing.median_us, self.timing.interval_us) * self.timing.median_us


def named(results: Results) -> dict[str, Time]:
    """Every time by a name of its own, in the order of the cases: the submission before its baselines, called before
    captured. Only of accepted submissions: the time of a wrong one says nothing."""
    found = [time for e in results.evaluations if isinstance(e, Accepted) for time in _of_evaluation(e)]
    count = Counter(time.name for time in found)
    by_name: dict[str, Time] = {}
    for time in found:
        name = time.name
        if count[name] > 1:  # of files in several folders
            name += f" ({time.evaluation.source_sha256[:SHOWN_DIGITS]})"
        while name in by_name:
            name += ", again"
        by_name[name] = time
    return by_name


def _of_evaluation(evaluation: Accepted) -> Iterator[Time]:
    for case in evaluation.cases:
        if isinstance(case, CasePassed):
            for part, kind, timing in timings_of(case):
                for baseline, of_one in {"": timing, **timing.baselines}.items():
                    yield Time(evaluation, case, part, kind, baseline, of_one)
