"""A plan is judged on a cluster: this process sends sources out, and gathers results. It judges nothing itself."""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec

from harness.cluster.building import built
from harness.cluster.connection import connected, said_by_ray
from harness.cluster.crew import Answered, Crew, Job
from harness.cluster.places import BUILD_CPUS, builders, places, require_some, why_mixed, why_unlike
from harness.cluster.seat import Seat
from harness.cluster.wire import About, Task, encode
from harness.device.choose import can_time
from harness.errors import INTERRUPTED, HarnessError, UsageError, name_of
from harness.events import Finished, OnCluster, OnEvent, Queued, SeatLost, nobody
from harness.lanes.options import Options, options
from harness.paths import shown_path
from harness.plan import Arguments, Group, RunPlan
from harness.reasons import Reason
from harness.report.formats import json as results_json
from harness.run import Chosen, RunStopped, fields_of_all, fields_of_one
from harness.store.rows import evaluation_of
from harness.submission import Submission
from harness.verdict import SCHEMA, Errored, Evaluation, Results

# Where times are taken, seats that do not say soon what they judge with are not waited for any longer.
START_S = 60.0

# A submission that was judged on so many seats that were lost is not sent to another: it may be what brings them down.
MOST_LOSSES = 3


def run(plan: RunPlan, arguments: Arguments, on_event: OnEvent = nobody, seat: Callable[..., Any] = Seat) -> Results:
    """As harness.run.run, on the cluster that `arguments` name. `seat` has Seat's methods."""
    for notice in plan.notices:
        on_event(notice)
    for group in plan.groups:
        for submission in group.submissions:
            on_event(Queued(submission.name, name_of(group.problem), group.device))
    chosen = Chosen(plan, on_event)
    chosen.of(plan.groups[0])  # what is wrong with a problem is said before anybody connects
    with connected(arguments.cluster) as ray:
        return _Driver(ray, plan, arguments, chosen, on_event).run(seat)


class _Driver:
    def __init__(self, ray: ModuleType, plan: RunPlan, arguments: Arguments, chosen: Chosen, on_event: OnEvent) -> None:
        self._ray, self._plan, self._arguments = ray, plan, arguments
        self._chosen, self._on_event = chosen, on_event
        self._device = plan.groups[0].device  # --device has named it
        self._is_timed = plan.settings.timing and can_time(self._device)
        self._coming = self._jobs()
        self._again: deque[Job] = deque()
        self._begun: deque[Job] = deque()
        """Those that others build already, in their order."""
        self._builders = 0
        self._build = ray.remote(num_cpus=BUILD_CPUS, max_retries=0)(built)
        self._evaluations: list[tuple[tuple[int, int], bytes]] = []
        """Packed: those of ten thousand submissions would fill the memory for as long as the run lasts."""
        self._first: About | None = None
        self._told: OnCluster | None = None

    def run(self, seat: Callable[..., Any]) -> Results:
        given = (self._device, self._arguments.isolation)
        require_some(self._places(), self._ray.nodes(), self._device, self._arguments.accelerator)
        with Crew(self._ray, seat, given, self._places, self._why_unfit) as crew:
            try:
                with said_by_ray(self._ray):
                    self._judge(crew)
            except (HarnessError, UsageError, KeyboardInterrupt) as error:
                if not self._evaluations:
                    raise
                cause = HarnessError(INTERRUPTED) if isinstance(error, KeyboardInterrupt) else error
                raise RunStopped(self._results(), cause) from error
        return self._results()

    def _judge(self, crew: Crew) -> None:
        for about in crew.start(self._chosen.count, START_S if self._is_timed else 0.0):
            if why := self._why_unfit(about):
                raise UsageError(why)
        self._count_builders()
        job = self._next()
        while job or crew.under_way:
            while job and crew.give(job):
                job = self._next()
            self._tell_of(crew)
            for heard in crew.heard():
                if isinstance(heard, Answered):
                    (evaluation,) = results_json.loads(heard.data).evaluations
                    self._finish(heard.job.place, evaluation, heard.about.environment)
                else:
                    self._count_builders()
                    self._lose(heard.job, heard.why)
                    self._again.extend(heard.others)
            job = job or self._next()

    def _tell_of(self, crew: Crew) -> None:
        now = OnCluster(crew.size, crew.under_way)
        if now != self._told:
            self._on_event(now)
        self._told = now

    # ------------------------------------------------------------------ seats

    def _places(self) -> list[dict[str, Any]]:
        nodes, accelerator = self._ray.nodes(), self._arguments.accelerator
        return places(nodes, self._device, timed=self._is_timed, accelerator=accelerator)

    def _count_builders(self) -> None:
        nodes, accelerator = self._ray.nodes(), self._arguments.accelerator
        self._builders = builders(nodes, self._device, timed=self._is_timed, accelerator=accelerator)

    def _why_unfit(self, about: About) -> str:
        """Why a seat cannot be used beside the first one, as a sentence; empty for one that can."""
        from harness.environment import describe

        why = why_unlike(about, describe())
        if not why and self._is_timed and self._first:
            why = why_mixed(about, self._first, self._device)
        self._first = self._first or (None if why else about)
        return why

    # ------------------------------------------------------------------ submissions

    def _next(self) -> Job | None:
        """The next to be sent, with as many behind it as others have room to build; None while there is none."""
        if self._again:
            return self._again.popleft()
        while len(self._begun) <= self._builders and (job := next(self._coming, None)):
            self._begun.append(job)
        return self._begun.popleft() if self._begun else None

    def _jobs(self) -> Iterator[Job]:
        """Each is read when its turn comes, so that the sources of ten thousand are never here at once."""
        for number, group in enumerate(self._plan.groups):
            if self._chosen.of(group):
                problem = self._ray.put(group.problem.read_bytes())
                for position, submission in enumerate(group.submissions):
                    place = (number, position)
                    if (source := self._read(submission, place)) is not None:
                        parts = (self._task(group, submission), source, problem, self._elsewhere(submission, source))
                        yield Job(place, parts)

    def _read(self, submission: Submission, place: tuple[int, int]) -> bytes | None:
        """Its source. None for what is another by now, or gone: that is its evaluation."""
        try:
            source = submission.path.read_bytes()
        except OSError as error:
            self._refuse(place, f"Its file cannot be read any more: {error.strerror}.")
            return None
        if hashlib.sha256(source).hexdigest() != submission.sha256:
            self._refuse(place, "Its file has changed since this run began. Run it again.")
            return None
        return source

    def _elsewhere(self, submission: Submission, source: bytes) -> list[Any]:
        """Ray's reference to what is built of it on processors that no seat has; none without any."""
        if not self._builders or not self._first or not (submission.uses_cuda or submission.is_host_code):
            return []
        architecture, check = self._first.architecture, self._plan.settings.check
        file = f"{submission.name}.py"
        return [self._build.remote(self._device, self._arguments.isolation, architecture, check, file, source)]

    def _task(self, group: Group, submission: Submission) -> bytes:
        settings, plan = self._plan.settings, self._plan
        asked = {name: getattr(settings, name) for name in Options.__struct_fields__ if hasattr(settings, name)}
        asked |= {"device": group.device, "select": plan.select, "dtype": plan.dtype, "against": ",".join(plan.against)}
        shown = (shown_path(submission.path), shown_path(group.problem))
        file, problem = f"{submission.name}.py", f"{name_of(group.problem)}.py"
        return encode(Task(file=file, problem=problem, options=options(asked, Options()), shown=shown))

    def _lose(self, job: Job | None, why: str) -> None:
        """A seat was lost: what it judged is judged on another, which says nothing about it."""
        self._on_event(SeatLost(why, self._submission(job.place).name if job else ""))
        if not job:
            return
        job.losses.append(why)
        if len(job.losses) < MOST_LOSSES:
            self._again.appendleft(job)
        else:
            self._refuse(job.place, f"Each of {len(job.losses)} processes that judged it was lost, the last so: {why}")

    # ------------------------------------------------------------------ evaluations

    def _submission(self, place: tuple[int, int]) -> Submission:
        return self._plan.groups[place[0]].submissions[place[1]]

    def _refuse(self, place: tuple[int, int], why: str) -> None:
        group = self._plan.groups[place[0]]
        common = fields_of_one(self._submission(place), group, self._plan)
        self._finish(place, Errored(**common, reason=Reason.NOT_JUDGED, message=why, cases=[]))

    def _finish(
        self, place: tuple[int, int], evaluation: Evaluation, environment: Mapping[str, Any] | None = None
    ) -> None:
        """`environment` is that of the seat that judged it; None where none did."""
        if not evaluation.problem_sha256:  # of what no judge has seen
            found = self._chosen.of(group := self._plan.groups[place[0]])
            evaluation = msgspec.structs.replace(evaluation, **fields_of_all(group, found[1] if found else []))
        self._evaluations.append((place, zlib.compress(encode(evaluation))))
        self._on_event(Finished(evaluation, len(self._evaluations), self._chosen.count, environment))

    def _results(self) -> Results:
        """In the plan's order. The environment is that of the first seat: others may have another processor."""
        environment = dict(self._first.environment) if self._first else {}
        in_order = [evaluation_of(packed) for _, packed in sorted(self._evaluations)]
        return Results(schema=SCHEMA, environment=environment, evaluations=in_order)
