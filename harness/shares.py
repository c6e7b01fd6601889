"""A plan that several processes judge side by side, each its share of the submissions, on a GPU of its own where there
are several. What they time waits for its turn (harness.device.turns), and builds are of all of them.

The processes are this program's own: nothing of a submission runs in them, as nothing does in this one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness import crash, process
from harness.device.choose import visible_gpus
from harness.errors import INTERRUPTED, HarnessError, Interrupted, UsageError, name_of
from harness.events import Building, Event, Finished, LeftOut, Loading, OnEvent, Queued
from harness.lanes.lane import how_it_ended
from harness.lanes.loading import ends_with_its_caller
from harness.plan import Group, RunPlan
from harness.reasons import Reason
from harness.run import RunStopped, fields_of_one, run
from harness.submission import Submission
from harness.verdict import SCHEMA, Errored, Evaluation, Results

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

# How long processes that are to end may take to say what they have; a killed one says nothing.
ENDING_S = 20.0

# So many processors are enough for a process that judges, its submission, and a build ahead.
ENOUGH_PROCESSORS = 4


@dataclass(frozen=True)
class _Said:
    """The last that a process says: its results, and what ended it before its end."""

    results: Results
    cause: str = ""
    is_usage: bool = False


def usual_jobs(plan: RunPlan) -> int:
    """A process for each GPU, where submissions are judged on one; else a single one."""
    return max(1, most_gpus(plan))


def most_gpus(plan: RunPlan) -> int:
    """How many GPUs have something to do at a time."""
    on_gpu = sum(len(group.submissions) for group in plan.groups if group.device == "cuda")
    return min(len(visible_gpus()), on_gpu) if on_gpu else 0


def run_side_by_side(plan: RunPlan, jobs: int, on_event: OnEvent) -> Results:
    """The results of a plan, as `run` has them, by `jobs` processes, of which there is one at least. Raises as `run`
    does. A process that is killed costs the submission that it judges: an error, not_judged."""
    shares = [share for share in (_share(plan, number, jobs) for number in range(jobs)) if share.groups]
    if len(shares) < 2:
        return run(plan, on_event)
    return _Together(plan, shares, on_event).run()


def _share(plan: RunPlan, number: int, count: int) -> RunPlan:
    """Every `count`th submission of each group: a folder's neighbours are often alike, and take as long."""
    groups = [replace(group, submissions=group.submissions[number::count]) for group in plan.groups]
    return replace(plan, groups=tuple(group for group in groups if group.submissions), notices=())


@dataclass
class _Member:
    """One of the processes, and what is left for it."""

    number: int
    count: int
    share: RunPlan
    process: Any = None
    talk: Connection | None = None
    loaded: tuple[str, str] = ("", "")
    """The problem and the device of what it judges."""
    at: Submission | None = None
    """What it judges now: a share goes in order, so of several of one name the first that is left."""
    has_judged: bool = False
    """Whether this process has come as far as a submission."""

    def begin(self) -> None:
        from multiprocessing import get_context  # most runs need none

        context = get_context("spawn")  # a fork would have this process's threads
        self.talk, other = context.Pipe()
        gpus = visible_gpus()
        gpu = gpus[self.number % len(gpus)] if gpus else ""
        self.process = context.Process(target=_judge, args=(self.share, gpu, other))
        start_on(_processors(self.number, self.count), self.process)
        self.has_judged = False
        other.close()

    def notice(self, event: Event) -> None:
        """Remember what is left, and what of it is judged now."""
        match event:
            case Loading():
                self.loaded = event.problem, event.device
            case Building():
                self.has_judged = True
                groups = (group for group in self.share.groups if _key(group) == self.loaded)
                self.at = next((s for group in groups for s in group.submissions if s.name == event.submission), None)
            case Finished():
                self.loaded = event.evaluation.problem, event.evaluation.device
                self.leave_out(event.evaluation.submission, event.evaluation.source_sha256)

    def leave_out(self, name: str, sha256: str) -> None:
        """Once: files of several folders may have one name, and one text."""
        groups = list(self.share.groups)
        for place, group in enumerate(groups):
            left = list(group.submissions)
            found = [s for s in left if (s.name, s.sha256) == (name, sha256)] if _key(group) == self.loaded else []
            if found:
                left.remove(found[0])
                groups[place] = replace(group, submissions=tuple(left))
                break
        self.share = replace(self.share, groups=tuple(group for group in groups if group.submissions))
        self.at = None


def _key(group: Group) -> tuple[str, str]:
    return name_of(group.problem), group.device


def _processors(number: int, count: int) -> list[int]:
    """Those that one of `count` processes uses alone, where there are enough: builds of others are not beside what it
    times. All where there are not."""
    all_of_them = sorted(os.sched_getaffinity(0))
    each = len(all_of_them) // count
    return all_of_them[number * each : (number + 1) * each] if each >= ENOUGH_PROCESSORS else all_of_them


def start_on(processors: Iterable[int], process: BaseProcess) -> None:
    """Start it with these from its first moment: what it loads asks which it has."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        process.start()
    finally:
        os.sched_setaffinity(0, own)


class _Together:
    """Processes that judge one plan."""

    def __init__(self, plan: RunPlan, shares: Sequence[RunPlan], on_event: OnEvent) -> None:
        self._plan = plan
        self._tell = on_event
        self._members = [_Member(number, len(shares), share) for number, share in enumerate(shares)]
        self._evaluations: list[Evaluation] = []
        self._isolation: dict[str, Any] = {}
        self._left_out: set[LeftOut] = set()
        self._cause: UsageError | HarnessError | None = None
        self._count = sum(len(group.submissions) for group in plan.groups)

    def run(self) -> Results:
        for notice in self._plan.notices:
            self._tell(notice)
        for group in self._plan.groups:
            for submission in group.submissions:
                self._tell(Queued(submission.name, name_of(group.problem), group.device))
        try:
            for member in self._members:
                member.begin()
            while self._running() and not self._cause:
                self._hear(None)
        except KeyboardInterrupt:
            self._cause = Interrupted(INTERRUPTED)
        finally:
            self._end()
        if self._cause and not self._evaluations:
            raise self._cause
        if self._cause:
            raise RunStopped(self._results(), self._cause) from self._cause
        return self._results()

    def _running(self) -> list[_Member]:
        return [member for member in self._members if member.talk]

    def _end(self) -> None:
        """End those that still run, and hear what they have."""
        for member in self._running():
            member.process.terminate()  # it ends what it has started, and says what it has
        while self._running() and self._hear(ENDING_S, restarts=False):
            pass
        for member in self._members:
            if member.process:
                member.process.join(ENDING_S)
                member.process.kill()

    def _hear(self, timeout_s: float | None, *, restarts: bool = True) -> bool:
        """Take what is said next; whether anything was."""
        from multiprocessing.connection import wait

        ready = wait([member.talk for member in self._running() if member.talk], timeout_s)
        for member in self._running():
            if member.talk in ready:
                self._take(member, restarts=restarts)
        return bool(ready)

    def _take(self, member: _Member, *, restarts: bool) -> None:
        assert member.talk
        try:
            said = member.talk.recv()
        except (EOFError, OSError):
            member.talk = None
            if restarts:
                self._lost(member)
            return
        if isinstance(said, _Said):
            member.talk = None
            self._isolation |= said.results.environment.get("isolation", {})
            if said.cause and not self._cause:
                self._cause = UsageError(said.cause) if said.is_usage else HarnessError(said.cause)
            return
        member.notice(said)
        self._pass_on(said)

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Queued):
            return
        if isinstance(event, LeftOut):  # each process says it
            if event in self._left_out:
                return
            self._left_out.add(event)
        if isinstance(event, Finished):
            self._evaluations.append(event.evaluation)
            event = Finished(event.evaluation, len(self._evaluations), self._count)
        self._tell(event)

    def _lost(self, member: _Member) -> None:
        """A process was killed: what it judged has no verdict, and another process judges the rest of its share."""
        member.process.join()
        how = how_it_ended(member.process.exitcode)
        if not member.has_judged:  # nor would the next one
            self._cause = HarnessError(f"A process that judges ended {how} before its first submission. Run it again.")
            return
        if member.at:
            group = next(group for group in member.share.groups if _key(group) == member.loaded)
            not_judged = Errored(
                **fields_of_one(member.at, group, self._plan),
                reason=Reason.NOT_JUDGED,
                message=f"The process that judged it ended {how}. Run it again.",
                cases=[],
            )
            member.leave_out(member.at.name, member.at.sha256)
            self._pass_on(Finished(not_judged, 0, 0))
        if member.share.groups:
            member.begin()

    def _results(self) -> Results:
        """In the plan's order."""
        planned = ((*_key(group), s.name, s.sha256) for group in self._plan.groups for s in group.submissions)
        places = {name: place for place, name in enumerate(planned)}
        in_order = sorted(self._evaluations, key=lambda e: places[e.problem, e.device, e.submission, e.source_sha256])
        return Results(schema=SCHEMA, environment={"isolation": self._isolation}, evaluations=in_order)


# ---------------------------------------------------------------------- a process


def _judge(share: RunPlan, gpu: str, talk: Connection) -> None:
    """Judge a share and say all that happens."""
    if not ends_with_its_caller():
        return
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    process.prepare()
    with contextlib.suppress(BrokenPipeError):
        talk.send(_said(share, talk.send))


def _said(share: RunPlan, tell: OnEvent) -> _Said:
    nothing = Results(schema=SCHEMA, environment={}, evaluations=[])
    try:
        with contextlib.redirect_stdout(sys.stderr):  # as in harness.cli
            return _Said(run(share, tell))
    except RunStopped as stopped:
        return _Said(stopped.results, str(stopped.cause), isinstance(stopped.cause, UsageError))
    except (UsageError, HarnessError) as error:
        return _Said(nothing, str(error), isinstance(error, UsageError))
    except KeyboardInterrupt:
        return _Said(nothing, INTERRUPTED)
    except Exception:
        return _Said(nothing, crash.report())
