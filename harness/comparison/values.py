"""What a comparison gives: frozen values, which reports see. Times are microseconds, ratios those of speeds: that of B
over that of A, so that more than 1 is faster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.timed import Kind
from harness.verdict import Evaluation, Speedup, status_of


class Difference(StrEnum):
    """How B stands to A."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE = "no different"


@dataclass(frozen=True)
class Side:
    """One of the two evaluations, and where it was found."""

    found_in: str
    """A file of results, or the database."""
    problem: str
    submission: str
    source_sha256: str
    device: str
    date: str
    """ISO 8601; empty where it is not known."""
    seed: int
    effort: str
    status: str
    why_untimed: str
    """A sentence where it has no times that count; empty otherwise."""

    @classmethod
    def of(cls, evaluation: Evaluation, *, found_in: str = "", date: str = "", why_untimed: str = "") -> Side:
        return cls(
            found_in=found_in,
            problem=evaluation.problem,
            submission=evaluation.submission,
            source_sha256=evaluation.source_sha256,
            device=evaluation.device,
            date=date,
            seed=evaluation.seed,
            effort=evaluation.effort,
            status=status_of(evaluation),
            why_untimed=why_untimed,
        )


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A ratio of speeds, and what it says."""

    speed: Speedup
    """B's over A's. The 95% interval is that of the rounds: what differs from run to run is in `floor`."""
    difference: Difference
    floor: float
    """A share: so much differs from run to run where nothing else does."""
    smallest_seen: float | None
    """A share: so large a difference would be found in four comparisons of five. None where times are in doubt, which
    are not tested."""


@dataclass(frozen=True, kw_only=True)
class Row(Judged):
    """One part of a case, timed in one way."""

    case: str
    part: str
    """`forward` or `backward` of a training step, timed alone; empty for the whole call."""
    kind: Kind
    a_us: float
    """The median, as `b_us`."""
    b_us: float
    over_eager: bool
    """Each side's rounds were divided by eager's of the same run before they were compared."""
    launch_bound: bool
    """Launching decides its time in one of the runs, so that the floor is high."""
    doubt: str
    """Why the judge doubts one of the times; empty where it does not."""

    @property
    def name(self) -> str:
        """With its part and kind, where it is not the called whole."""
        return shown(self.case, self.part, self.kind)


@dataclass(frozen=True, kw_only=True)
class Mean(Judged):
    """The geometric mean over the cases of one kind, whole calls alone."""

    kind: Kind
    cases: int


@dataclass(frozen=True)
class Comparison:
    """How B stands to A."""

    a: Side
    b: Side
    test: str
    """By what it was decided."""
    differs: tuple[str, ...]
    """In what the boards of the two differ, or may differ, in words; empty where they are on one board."""
    rows: tuple[Row, ...]
    means: tuple[Mean, ...]
    only_in_a: tuple[str, ...]
    """What was timed in A alone."""
    only_in_b: tuple[str, ...]


def shown(case: str, part: str, kind: Kind) -> str:
    """A case's name, with what was timed of it where that is not the called whole."""
    return ", ".join(filter(None, (case, part, kind if kind is Kind.CAPTURED else "")))
