"""What is timed, and the rounds that it has had."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from harness.device.base import Reader
from harness.isolation.sandbox import Worker
from harness.timing import stats

# A call that is at least this share Python and launch is labelled launch-bound.
LAUNCH_BOUND_SHARE = 0.9


@dataclass
class Contender:
    """An implementation being timed: its worker, and its rounds so far in the order they were run."""

    name: str
    worker: Worker
    reader: Reader
    trusted: bool = False
    """Whether it runs our own code and the problem's, and nothing of a submission's."""
    calls: int = 1
    call_us: float = 0.0
    """A first estimate, which decides how many calls a round has."""
    round_s: list[float] = field(default_factory=list)
    null_s: list[float] = field(default_factory=list)
    issue_us: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    """What its rounds took in all, with what is not timed."""
    finished: bool = False
    masks: dict[int, list[np.ndarray]] = field(default_factory=dict)
    """What was dropped of an output, by its position, in calls of the first rounds."""

    def start_again(self, calls: int) -> None:
        """With other rounds, of so many calls."""
        self.calls = calls
        for rounds in (self.round_s, self.null_s, self.issue_us):
            rounds.clear()

    def samples_us(self) -> list[float]:
        """Time of a call in each round, microseconds; never below a nanosecond."""
        return [max(sample, 1e-3) for sample in self.net_us()]

    def net_us(self) -> list[float]:
        """Time of a call in each round, which noise may make negative."""
        fixed_us = self.fixed_us()
        return [(t * 1e6 - fixed_us) / self.calls for t in self.round_s]

    def below_noise(self) -> bool:
        """Whether its calls cannot be told from what a round costs without any, as where others keep the machine
        busy."""
        return stats.median_interval(self.net_us())[0] <= 0.0

    def at_most_us(self, doubt_us: float) -> float:
        """What a call took at the most, all doubts in its favour: the least that a null kernel's round ever cost is taken
        off, less what its rounds may cost otherwise, and the interval's upper end counts."""
        least_us = min(self.null_s) * 1e6 - doubt_us
        return stats.median_interval([(t * 1e6 - least_us) / self.calls for t in self.round_s])[1]

    def null_spread_us(self) -> float:
        """By how much the null kernel's rounds differed: no time of a round is known better."""
        return (max(self.null_s) - min(self.null_s)) * 1e6

    def fixed_us(self) -> float:
        """What a round costs beside its calls, microseconds."""
        return float(np.median(self.null_s)) * 1e6

    def median_issue_us(self) -> float:
        """How long a call took to return, as the worker says."""
        return float(np.median(self.issue_us))

    def known_within(self, half_width: float) -> bool:
        return stats.relative_half_width(self.samples_us()) <= half_width

    def launch_bound(self) -> bool:
        return self.median_issue_us() >= LAUNCH_BOUND_SHARE * float(np.median(self.samples_us()))
