"""The seats of a run: which there are, what each has to do, and another for each that is lost.

Ray restarts no actor and repeats no call: it would judge what has brought a seat down any number of times, and tell
nobody.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from harness.cluster.seat import Seat
from harness.cluster.wire import About, decode_about
from harness.errors import HarnessError, one_line

# So many submissions are at a seat, of which one is judged: the next is there when that has its verdict.
WINDOW = 2

# A seat that is lost before it said that is tried again so often.
MOST_STARTS = 3

# For how long a cluster may have no node that judges: some come back.
ABSENT_S = 60.0

# How long seats have to end what they started.
END_S = 20.0

_LOOK_S = 1.0


@dataclass(eq=False)
class Job:
    """A submission on its way: `place` is that of its group in the plan and its own there."""

    place: tuple[int, int]
    parts: tuple[Any, ...]
    """What a seat is given: task, source, problem, and references to what others build."""
    losses: list[str] = field(default_factory=list)
    """Why each seat was lost that judged it."""


@dataclass(frozen=True)
class Answered:
    """A seat's results, which `about` says what they were made with."""

    job: Job
    data: bytes
    about: About


@dataclass(frozen=True)
class Lost:
    """A seat is gone. What it judged is `job`; `others` only waited there."""

    job: Job | None
    others: tuple[Job, ...]
    why: str
    again: bool = False
    """Whether another is started in its place."""


@dataclass(eq=False)
class _Member:
    """One seat as the driver sees it."""

    actor: Any
    options: Mapping[str, Any]
    starts: int
    asked: Any
    """Ray's reference to what it will say of itself."""
    about: About | None = None
    sent: deque[tuple[Job, Any]] = field(default_factory=deque)
    """What it has to do, with Ray's references to the answers, in order."""


class Crew:
    """Seats in the places that a cluster has. Use it as a context manager."""

    def __init__(
        self,
        ray: ModuleType,
        seat: Callable[..., Any] | type[Seat],
        given: Sequence[object],
        places: Callable[[], list[dict[str, Any]]],
        why_unfit: Callable[[About], str],
    ) -> None:
        """Seats are `seat(*given)`. `places` gives Ray's options for each that there is room for now; `why_unfit` says
        of one that comes later why it cannot be used, or nothing."""
        self._ray, self._seat, self._given = ray, seat, given
        self._places, self._why_unfit = places, why_unfit
        self._members: list[_Member] = []
        self._absent_since_s: float | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_about: object) -> None:
        """End all seats, with what they judge."""
        ending = [each.actor.close.options(concurrency_group="ending").remote() for each in self._ready()]
        if ending:
            self._ray.wait(ending, num_returns=len(ending), timeout=END_S)
        for member in self._members:
            self._ray.kill(member.actor)

    @property
    def under_way(self) -> int:
        """How many jobs are at seats."""
        return sum(len(member.sent) for member in self._members)

    @property
    def size(self) -> int:
        """How many seats judge."""
        return len(self._ready())

    def start(self, most: int, wait_s: float) -> list[About]:
        """Start at most so many seats, and give what each judges with that has said it within `wait_s`, at least one.
        Raises HarnessError where one cannot judge."""
        for options in self._places()[:most]:
            self._begin(options)
        ends_s = time.monotonic() + wait_s
        while (coming := self._coming()) and not (self._ready() and time.monotonic() > ends_s):
            for lost in self._introduced(coming):
                if not lost.again:
                    raise HarnessError(f"What judges does not start in the cluster: {lost.why}")
            self._require_nodes()
        abouts = [member.about for member in self._ready() if member.about]
        if failed := next((about for about in abouts if about.failure), None):
            raise HarnessError(f"The node {failed.node} cannot judge: {failed.failure}")
        return abouts

    def give(self, job: Job) -> bool:
        """Send it to the seat with the least to do; whether any has room."""
        member = min(self._ready(), key=lambda member: len(member.sent), default=None)
        if not member or len(member.sent) >= WINDOW:
            return False
        member.sent.append((job, member.actor.judge.remote(*job.parts)))
        return True

    def heard(self) -> Iterator[Answered | Lost]:
        """What has happened within a moment. Raises HarnessError when nobody is left who judges."""
        coming = self._coming()
        yield from self._introduced(coming, [member.sent[0][1] for member in self._members if member.sent])
        for member in coming:
            if member.about and (why := member.about.failure or self._why_unfit(member.about)):
                self._drop(member)
                yield Lost(None, (), why)
        for member in self._ready():
            yield from self._answers(member)
        self._require_nodes()

    # ------------------------------------------------------------------ one seat

    def _ready(self) -> list[_Member]:
        return [member for member in self._members if member.about]

    def _coming(self) -> list[_Member]:
        return [member for member in self._members if not member.about]

    def _begin(self, options: Mapping[str, Any], starts: int = 1) -> None:
        of_ray = self._ray.remote(**options, max_restarts=0, max_task_retries=0, concurrency_groups={"ending": 1})
        actor = of_ray(self._seat).remote(*self._given)
        self._members.append(_Member(actor, options, starts, actor.about.remote()))

    def _introduced(self, coming: Sequence[_Member], beside: Sequence[Any] = ()) -> Iterator[Lost]:
        """Wait a moment for what those say that are coming, or for one of the references `beside`."""
        references = [*(member.asked for member in coming), *beside]
        if not references:
            return
        self._ray.wait(references, timeout=_LOOK_S)
        for member in coming:
            if not self._is_there(member.asked):
                continue
            try:
                member.about = decode_about(self._ray.get(member.asked))
            except self._ray.exceptions.RayError as error:
                yield self._lost(member, error, again=member.starts < MOST_STARTS)

    def _answers(self, member: _Member) -> Iterator[Answered | Lost]:
        while member.sent and self._is_there(member.sent[0][1]):
            job, reference = member.sent[0]
            try:
                data = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                yield self._lost(member, error, again=True)
                return
            member.sent.popleft()
            assert member.about
            yield Answered(job, data, member.about)

    def _is_there(self, reference: Any) -> bool:
        return bool(self._ray.wait([reference], timeout=0)[0])

    def _lost(self, member: _Member, error: Exception, *, again: bool) -> Lost:
        """Take it away, and start another in a place like its own, where Ray has or gets one."""
        self._drop(member)
        if again:
            self._begin(member.options, 1 if member.about else member.starts + 1)
        jobs = [job for job, _ in member.sent]
        node = member.about.node if member.about else "a node"
        why = f"{node} was lost: {_cause(error)}" if member.about else _cause(error)
        return Lost(jobs[0] if jobs else None, tuple(jobs[1:]), why, again)

    def _drop(self, member: _Member) -> None:
        self._members.remove(member)
        self._ray.kill(member.actor)

    def _require_nodes(self) -> None:
        """Raises HarnessError when no seat judges, and none is to come or for a while no node could have one."""
        if not self._members:
            raise HarnessError("No process of the cluster can judge, as is said above.")
        if self._ready() or self._places():
            self._absent_since_s = None
            return
        self._absent_since_s = self._absent_since_s or time.monotonic()
        if time.monotonic() - self._absent_since_s > ABSENT_S:
            raise HarnessError("The cluster has lost all nodes that judge. Add some, and run what is left again.")


def _cause(error: Exception) -> str:
    """What Ray says in the end, as a sentence: before it stand its own frames, and behind it its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return one_line(f"{lines[-1].partition('. ')[0][:300].rstrip('.')}.")
