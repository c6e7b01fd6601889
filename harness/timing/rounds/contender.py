"""An implementation that is timed, its rounds so far, and what they say about a call."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from harness.device.base import Reader
from harness.isolation.sandbox import Worker
from harness.timing import stats

# A call of which Python and launching take at least this share is labelled launch-bound.
LAUNCH_BOUND_SHARE = 0.9


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds of processors that a worker used for one round: from when it was told of the round until it waited for
    the first buffer, while the clock ran, and while it named its outputs."""

    before: float
    timed: float
    after: float

    @property
    def beside(self) -> float:
        """While the clock did not run."""
        return self.before + self.after


@dataclass
class Contender:
    """The worker of an implementation, and its rounds so far, in the order they were played."""

    name: str
    worker: Worker
    reader: Reader
    trusted: bool = False
    """Whether it runs only our own code and the problem's, and nothing of a submission."""
    calls: int = 1
    """Calls of a round; 1 before they are chosen."""
    call_us: float = 0.0
    """An estimate of the time of a call, which decides how many calls a round has; 0 before there is one."""
    round_s: list[float] = field(default_factory=list)
    """Time of each round."""
    null_s: list[float] = field(default_factory=list)
    """What each round cost beside its calls."""
    issue_us: list[float] = field(default_factory=list)
    """How long a call took to return in each round, as the worker says."""
    processor_s: list[ProcessorTime] = field(default_factory=list)
    """What each round took of the processors."""
    null_processor_s: list[float] = field(default_factory=list)
    """What each round took of them beside its calls, while the clock ran."""
    left_device_busy: list[bool] = field(default_factory=list)
    """For each round that found the device idle: whether it was not, once the contender stood still again."""
    spent_s: float = 0.0
    """Time of all rounds, including what is not timed."""
    finished: bool = False
    """Whether it has a time to be reported."""
    masks: dict[int, list[np.ndarray]] = field(default_factory=dict)
    """Dropped elements (booleans) in calls of the first rounds, by the output's position."""
    captured: bool = False
    """Whether its rounds launch CUDA graphs of its calls."""

    def anew(self, *, captured: bool) -> Contender:
        """The same worker without rounds. As many calls as a round had are what to begin with."""
        return Contender(self.name, self.worker, self.reader, trusted=self.trusted, calls=self.calls, captured=captured)

    def start_again(self, calls: int) -> None:
        """Drop all rounds; further ones have so many calls."""
        self.calls = calls
        for rounds in (self.round_s, self.null_s, self.issue_us, self.processor_s, self.null_processor_s):
            rounds.clear()

    def samples_us(self) -> list[float]:
        """Time of a call in each round, at least a nanosecond."""
        return [max(sample, 1e-3) for sample in self.net_us()]

    def net_us(self) -> list[float]:
        """Time of a call in each round. Noise may make it negative."""
        fixed_us = self.fixed_us()
        return [(t * 1e6 - fixed_us) / self.calls for t in self.round_s]

    def processor_us(self) -> list[float]:
        """Processor time of a call in each round, of all threads, at least a nanosecond."""
        fixed_s = float(np.median(self.null_processor_s))
        return [max((used.timed - fixed_s) * 1e6 / self.calls, 1e-3) for used in self.processor_s]

    def below_noise(self) -> bool:
        """Whether its rounds cannot be told from rounds without calls, as on a machine that others keep busy."""
        return stats.median_interval(self.net_us())[0] <= 0.0

    def at_most_us(self, doubt_us: float) -> float:
        """Upper bound of a call's time: the interval's upper end, with the least overhead subtracted.

        That is the cheapest null round less `doubt_us`, by which other rounds may cost less than null rounds."""
        least_us = min(self.null_s) * 1e6 - doubt_us
        return stats.median_interval([(t * 1e6 - least_us) / self.calls for t in self.round_s])[1]

    def null_spread_us(self) -> float:
        """Range of the null rounds' costs. The time of a round is known no better."""
        return (max(self.null_s) - min(self.null_s)) * 1e6

    def fixed_us(self) -> float:
        """What a round costs beside its calls: the median."""
        return float(np.median(self.null_s)) * 1e6

    def median_issue_us(self) -> float:
        """How long a call took to return, as the worker says: the median."""
        return float(np.median(self.issue_us))

    def known_within(self, half_width: float) -> bool:
        """Whether half the width of its time's interval is at most the share `half_width` of its time."""
        return stats.relative_half_width(self.samples_us()) <= half_width

    def launch_bound(self) -> bool:
        """Whether a call takes hardly longer than Python and launching do."""
        return self.median_issue_us() >= LAUNCH_BOUND_SHARE * float(np.median(self.samples_us()))
