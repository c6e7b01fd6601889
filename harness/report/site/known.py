"""How well a speedup is known, and whether two differ: the rule by which entries tie (harness/store/schema.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.report.site.charts.scale import drawable
from harness.store.rows import Z_95, variance
from harness.verdict import CaseTiming


@dataclass(frozen=True)
class Known:
    """A logarithm of a speedup over eager, and its variance."""

    log: float
    variance: float

    def differs(self, other: Known) -> bool:
        """Whether the 95% interval of the difference leaves out 0."""
        return (self.log - other.log) ** 2 > Z_95**2 * (self.variance + other.variance)


def known(value: float, interval: tuple[float, float]) -> Known | None:
    """Of a speedup with a 95% interval; none for figures that are no speedup."""
    if not all(map(drawable, (value, *interval))):
        return None
    of_log = variance(interval)
    return None if of_log is None else Known(math.log(value), of_log)


def known_of_case(timing: CaseTiming) -> Known | None:
    """The speedup over eager of a case."""
    eager = timing.baselines.get("eager")
    return known(eager.speedup.ratio, eager.speedup.interval) if eager else None
