"""What happens while a plan is run, as values: progress, logs and every later consumer live on these alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.verdict import Evaluation


@dataclass(frozen=True)
class Queued:
    """A submission will be judged; told of all of them before the first."""

    submission: str
    problem: str
    device: str


@dataclass(frozen=True)
class WithoutEffect:
    """Options that were given and do nothing on a device."""

    options: tuple[str, ...]
    device: str
    why: str
    """How the sentence goes on behind the options."""


@dataclass(frozen=True)
class LeftOut:
    """A problem or a submission that is not judged."""

    name: str
    why: str
    """How the sentence goes on behind the name."""


@dataclass(frozen=True)
class Namesake:
    """A problem in problems/ where the program was started, which differs from the shipped one of its name: that one
    judges."""

    file: str


@dataclass(frozen=True)
class EmulatorBuilding:
    """The emulator is built first, which takes about half a minute, once for each version of it and of torch."""


@dataclass(frozen=True)
class Loading:
    """The judge loads a problem, and workers start."""

    problem: str
    device: str


@dataclass(frozen=True)
class Building:
    """A submission is built and imported."""

    submission: str
    problem: str


@dataclass(frozen=True)
class Judging:
    """A case is judged: number `position` of `count`."""

    submission: str
    problem: str
    case: str
    position: int
    count: int


@dataclass(frozen=True)
class TimesBegin:
    """Nothing is built or loaded any more: from here to its end this submission is timed. Who lets times be taken one
    at a time waits in here."""

    submission: str


@dataclass(frozen=True)
class DeviceTaken:
    """A submission waits for its turn on a device that another run of kernelgate has."""

    submission: str
    problem: str
    device: str
    process: int = 0
    """That run's; 0 where it cannot be known."""


@dataclass(frozen=True)
class Timing:
    """A case is timed."""

    submission: str
    problem: str
    case: str


@dataclass(frozen=True)
class Sanitizing:
    """One of compute-sanitizer's tools runs."""

    submission: str
    problem: str
    tool: str


@dataclass(frozen=True)
class Finished:
    """A submission has its evaluation: number `position` of `count`."""

    evaluation: Evaluation
    position: int
    count: int
    environment: Mapping[str, Any] | None = None
    """The machine and versions that it was judged with, where that was another machine."""


@dataclass(frozen=True)
class OnCluster:
    """So many actors of a cluster have so many submissions, of which each judges one. Told where it changes."""

    actors: int
    under_way: int


@dataclass(frozen=True)
class SeatLost:
    """An actor of the cluster is gone, or cannot be used; `submission` was judged there, and nothing is said of it."""

    why: str
    submission: str = ""


Event = (
    Queued
    | WithoutEffect
    | LeftOut
    | Namesake
    | EmulatorBuilding
    | Loading
    | Building
    | Judging
    | TimesBegin
    | DeviceTaken
    | Timing
    | Sanitizing
    | Finished
    | OnCluster
    | SeatLost
)

OnEvent = Callable[[Event], None]


def nobody(_event: Event) -> None:
    """For who does not listen."""
