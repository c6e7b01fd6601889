"""Running a plan: one evaluation after the other, told as events, gathered as results."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness import against, crash
from harness.device.choose import (
    Preparing,
    WaitForDevice,
    can_time,
    is_prepared,
    open_device,
    prepare_device,
    unprepared,
)
from harness.device.memory_file import MemoryFile
from harness.errors import (
    INTERRUPTED,
    HarnessError,
    Interrupted,
    JudgeFailed,
    KernelgateError,
    ReferenceFault,
    StoppedWhileTimed,
    UsageError,
    name_of,
)
from harness.events import Building, EmulatorBuilding, Finished, LeftOut, Loading, OnEvent, Queued, nobody
from harness.garbage import no_garbage_collection
from harness.isolation.sandbox import PROCESSORS
from harness.isolation.starter import Starter, kept_zygotes
from harness.judging.building import Ahead, Builds, most_ahead
from harness.plan import Group, RunPlan
from harness.reasons import Reason
from harness.settings import sub_seed
from harness.storage.disk import full_is_said
from harness.submission import Submission
from harness.verdict import SCHEMA, Accepted, Errored, Evaluation, Results, digest_of_cases

if TYPE_CHECKING:
    from harness.problem import Case, Problem

# Times are taken once the next submissions' workers have loaded, which takes longer than most verdicts. Several that
# load together are waited for once. Each has a CUDA context, and keeps some processors busy while it loads.
NEXT_WORKERS = max(1, min(3, len(PROCESSORS) // 4))

# So many submissions are imported before the emulator is built, each in a process of its own. A mistake in one of many
# is found while the others are judged.
MOST_LOOKED_AT = 3


class RunStopped(KernelgateError):
    """A run ended before its end; what was measured until then is kept."""

    def __init__(self, results: Results, cause: UsageError | HarnessError) -> None:
        self.results = results
        self.cause = cause
        super().__init__(str(cause))


def run(plan: RunPlan, on_event: OnEvent = nobody) -> Results:
    """Judge all that is planned. `on_event` is told what happens, in this thread. Who is stopped while it is timed is
    finished with what is known.

    Raises RunStopped when HarnessError, UsageError or KeyboardInterrupt ends the run after the first evaluation; before
    it these themselves."""
    for notice in plan.notices:
        on_event(notice)
    for group in plan.groups:
        for submission in group.submissions:
            on_event(Queued(submission.name, name_of(group.problem), group.device))
    evaluations: list[tuple[int, Evaluation]] = []
    chosen = Chosen(plan, on_event)

    def finish(position: int, evaluation: Evaluation) -> None:
        evaluations.append((position, evaluation))
        on_event(Finished(evaluation, len(evaluations), chosen.count))

    position = 0
    try:
        with full_is_said(), _Beside(plan) as beside:
            for position, coming in beside.turns():
                turn = _Turn(plan.groups[position], coming, plan, chosen, beside, on_event)
                for evaluation in _of_one_of_several(turn) if plan.several_problems else _of_group(turn):
                    finish(position, evaluation)
    except (HarnessError, UsageError, KeyboardInterrupt) as error:
        if isinstance(error, StoppedWhileTimed):
            finish(position, error.evaluation)
        if not evaluations:
            raise
        cause = Interrupted(INTERRUPTED) if isinstance(error, KeyboardInterrupt) else error
        raise RunStopped(_results(plan, evaluations), cause) from error
    return _results(plan, evaluations)


def _results(plan: RunPlan, evaluations: Sequence[tuple[int, Evaluation]]) -> Results:
    """Of evaluations with their groups' positions in the plan, whose order they get."""
    isolation = {device: chosen.describe() for device, chosen in plan.isolation.items()}
    in_order = [evaluation for _, evaluation in sorted(evaluations, key=lambda placed: placed[0])]
    return Results(schema=SCHEMA, environment={"isolation": isolation}, evaluations=in_order)


class Chosen:
    """The problems of a plan, and of each the cases that -k chooses; all are loaded before anything is judged, so that
    what is wrong with one is said at once."""

    def __init__(self, plan: RunPlan, on_event: OnEvent) -> None:
        self._plan = plan
        self._on_event = on_event
        self._chosen: dict[Path, tuple[Problem, list[Case]]] | None = None

    @property
    def are_loaded(self) -> bool:
        """Whether `of` takes no time."""
        return self._chosen is not None

    def of(self, group: Group) -> tuple[Problem, list[Case]] | None:
        """None where -k fits no case of it. Raises UsageError for a problem that cannot be loaded, and where nothing
        is left."""
        if self._chosen is None:
            self._chosen = self._load()
        return self._chosen.get(group.problem)

    @property
    def count(self) -> int:
        """How many evaluations there will be."""
        return sum(len(group.submissions) for group in self._plan.groups if self.of(group))

    def _load(self) -> dict[Path, tuple[Problem, list[Case]]]:
        from harness.problem import asked_for, load_problem, no_case_fits

        seed = sub_seed(self._plan.settings.seed, "shapes") % 2**32
        paths = dict.fromkeys(group.problem for group in self._plan.groups)
        problems = [load_problem(path, seed) for path in paths]
        chosen = {problem.path: (problem, cases) for problem in problems if (cases := self._select(problem))}
        if not chosen:
            raise no_case_fits(problems[0], self._plan.select, self._plan.dtype)
        for problem in problems:
            if problem.path not in chosen:
                asked = asked_for(self._plan.select, self._plan.dtype)
                self._on_event(LeftOut(problem.name, f"no case of which matches {asked}"))
        return chosen

    def _select(self, problem: Problem) -> list[Case]:
        cases = [c for c in problem.matching(self._plan.select) if self._plan.dtype in ("", *c.dtype_text.split(", "))]
        if cases and self._plan.needs_times and not any(case.timed for case in cases):
            raise UsageError(
                f"--min-speedup needs a timed case, and none of those chosen of {problem.name} is timed. 'eval.py list "
                f"{problem.name}' shows which are."
            )
        return cases


class _Beside:
    """What goes on beside the judging of a group, and behind it: parts of the device are built for later groups, their
    first submission is built, and workers are forked from what has loaded torch."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._open = contextlib.ExitStack()
        self.preparing = Preparing(check=plan.settings.check)
        self.ahead = Ahead(most_ahead())

    def __enter__(self) -> _Beside:
        self._open.enter_context(kept_zygotes())
        self._open.callback(self.ahead.end)
        self._open.enter_context(self.preparing)
        return self

    def __exit__(self, *about: Any) -> None:
        self._open.__exit__(*about)

    def turns(self) -> Iterator[tuple[int, list[Group]]]:
        """Positions of groups in the order in which they are judged, each with the later ones. Those on one device
        stand in their places so that what the device lacks for the last can be built beside the first. Who is timed on
        the processors comes last: nothing is built beside that."""
        groups = self._plan.groups
        order = sorted(range(len(groups)), key=lambda position: _takes_the_processors(groups[position], self._plan))
        for device in {group.device for group in groups}:
            own = [position for position in order if groups[position].device == device]
            lacks = [unprepared(device, _paths(groups[each]), check=self._plan.settings.check) for each in own]
            ranked = iter([position for _, position in sorted(zip(lacks, own, strict=True))])
            order = [next(ranked) if position in own else position for position in order]
        for turn, position in enumerate(order):
            yield position, [groups[other] for other in order[turn + 1 :]]

    def leave_alone(self) -> None:
        """Finish all that is built: calls will be timed."""
        self.ahead.finish()
        self.preparing.finish()


def _paths(group: Group) -> list[Path]:
    return [submission.path for submission in group.submissions]


@dataclass(frozen=True)
class _Turn:
    """A group whose turn it is, and what judging it needs; `coming` are the groups that are judged later."""

    group: Group
    coming: Sequence[Group]
    plan: RunPlan
    chosen: Chosen
    beside: _Beside
    on_event: OnEvent

    @property
    def is_timed(self) -> bool:
        return _is_timed(self.group, self.plan)

    @property
    def takes_the_processors(self) -> bool:
        return _takes_the_processors(self.group, self.plan)

    @property
    def lets_workers_wait(self) -> bool:
        """A submission that is timed could reach a worker that waits for another one, but for namespaces."""
        return self.is_timed and self.group.device != "cpu" and self.group.isolation.private_tree


def _of_one_of_several(turn: _Turn) -> Iterator[Evaluation]:
    """Those of a group; what is wrong with its reference costs the other problems nothing. KernelBench has some whose
    references draw random numbers."""
    judged = set()
    try:
        for evaluation in _of_group(turn):
            judged.add((evaluation.submission, evaluation.source_sha256))
            yield evaluation
    except ReferenceFault as error:
        found = turn.chosen.of(turn.group)
        for submission in turn.group.submissions:
            if (submission.name, submission.sha256) not in judged:
                common = fields_of_all(turn.group, found[1] if found else ())
                common |= fields_of_one(submission, turn.group, turn.plan)
                yield Errored(**common, reason=Reason.NOT_JUDGED, message=str(error), cases=[])


def _of_group(turn: _Turn) -> Iterator[Evaluation]:
    """The evaluations of one problem's submissions on one device."""
    group, plan, beside = turn.group, turn.plan, turn.beside
    if turn.chosen.are_loaded and not turn.chosen.of(group):
        return
    if turn.takes_the_processors:
        beside.leave_alone()
    few = sum(len(each.submissions) for each in plan.groups) <= MOST_LOOKED_AT
    if few and not is_prepared(group.device, _paths(group), check=plan.settings.check):
        group, refused = _looked_at(turn)
        yield from refused
        if not group.submissions:
            return
        turn = dataclasses.replace(turn, group=group)
    paths = _paths(group)
    # What others need beside the first is built while that one is judged.
    building = partial(turn.on_event, EmulatorBuilding())
    prepare_device(group.device, paths[:1], check=plan.settings.check, on_build=building)
    memory = MemoryFile()
    starter = Starter(group.device, memory.fd, group.isolation, [group.problem])
    try:
        _start_ahead(starter, turn)
        turn.on_event(Loading(name_of(group.problem), group.device))
        wait = beside.preparing.begin(group.device, paths[1:])
        if not turn.is_timed:
            later = [path for other in turn.coming if other.device == group.device for path in _paths(other)]
            beside.preparing.begin(group.device, later)
        yield from _judged(turn, memory, starter, wait)
    finally:
        starter.end(kept=beside.ahead.workers)
        memory.close()  # a lane runs one plan after the other


def _looked_at(turn: _Turn) -> tuple[Group, list[Evaluation]]:
    """The group without those that cannot even be imported, and the evaluations of these: nothing has to be built to
    know it."""
    from harness.judging import first_look

    group = turn.group
    if not (found := turn.chosen.of(group)):
        return group, []
    memory, kept, refused = MemoryFile(), [], list[Evaluation]()
    with contextlib.closing(memory):
        for submission in group.submissions:
            turn.on_event(Building(submission.name, name_of(group.problem)))
            common = fields_of_all(group, found[1]) | fields_of_one(submission, group, turn.plan)
            evaluation = first_look.refusal(submission, memory.fd, group.isolation, group.problem, common)
            if evaluation:
                refused.append(evaluation)
            else:
                kept.append(submission)
    return dataclasses.replace(group, submissions=tuple(kept)), refused


def fields_of_all(group: Group, cases: Sequence[Case]) -> dict[str, Any]:
    """Fields of all evaluations of a group."""
    digest = digest_of_cases(case.name for case in cases)
    return {"problem_sha256": _sha256(group.problem), "chosen_cases": digest}


def fields_of_one(submission: Submission, group: Group, plan: RunPlan) -> dict[str, Any]:
    """Fields of an evaluation that no judge made."""
    return {
        "problem": name_of(group.problem),
        "submission": submission.name,
        "source_sha256": submission.sha256,
        "device": group.device,
        "seed": plan.settings.seed,
        "effort": plan.settings.effort,
    }


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # loading it says what is wrong
        return ""


def _is_timed(group: Group, plan: RunPlan) -> bool:
    return plan.settings.timing and can_time(group.device)


def _takes_the_processors(group: Group, plan: RunPlan) -> bool:
    """Whether calls are timed on the processors, which compilers would take time from."""
    return group.device == "cpu" and _is_timed(group, plan)


def _start_ahead(starter: Starter, turn: _Turn) -> None:
    """Start the first submission's worker, and those of the null kernel and the baselines where calls are timed: they
    load torch while this process does."""
    others = [*turn.plan.against, "null kernel"] if turn.is_timed else []
    compilers = sum(name in against.COMPILED for name in others)
    starter.start_ahead(workers=1 + len(others) - compilers, compilers=compilers)


class _Queue:
    """A group's submissions, one after the other, and the builds of those behind: of this group, then of later ones."""

    def __init__(self, turn: _Turn, starter: Starter) -> None:
        self.waiting = list(turn.group.submissions)
        self._turn = turn
        self._ahead = turn.beside.ahead
        self._builds = {
            group.device: Builds(group.device, starter, self._ahead) for group in (turn.group, *turn.coming)
        }
        self._later = [
            (group.device, submission)
            for group in turn.coming
            if turn.chosen.of(group)
            for submission in group.submissions
        ]

    def build(self) -> None:
        """Begin builds for those that are judged next, while there is room.

        Compilers would take a CPU's time from what is timed on it; beside a GPU there are more processors than a caller
        of kernels needs. What is built runs nothing of its submission."""
        if not self._turn.takes_the_processors:
            behind = [*((self._turn.group.device, submission) for submission in self.waiting), *self._later]
            _build(behind, self._builds, self._ahead, check=self._turn.plan.settings.check)


def _build(
    behind: Sequence[tuple[str, Submission]], builds: Mapping[str, Builds], ahead: Ahead, *, check: bool
) -> None:
    """Begin the builds of submissions, each with its device. Nobody's file is looked at twice: it may be one of
    thousands, and built."""
    new = [(device, each) for device, each in behind if (device, each.sha256) not in ahead.looked_at]
    for device, submission in new[: ahead.most_kept]:
        if not ahead.has_room:
            return
        # What the device still lacks would be missing in the build.
        if is_prepared(device, [submission.path], check=check):
            ahead.looked_at.add((device, submission.sha256))
            builds[device].begin_ahead(submission, check=check, gently=True)


def _judged(turn: _Turn, memory: MemoryFile, starter: Starter, wait_for_device: WaitForDevice) -> Iterator[Evaluation]:
    """All of the group; `wait_for_device` comes before the second."""
    with no_garbage_collection():  # these load torch for seconds, while workers do
        from harness.judge import Judge
        from harness.tools.sanitizing import sanitized

    group, plan, on_event, ahead = turn.group, turn.plan, turn.on_event, turn.beside.ahead
    if not (found := turn.chosen.of(group)):
        return
    problem, cases = found
    of_all = fields_of_all(group, cases)
    baselines = plan.against if turn.is_timed else ()
    queue = _Queue(turn, starter)
    with contextlib.closing(open_device(group.device, memory)) as device:
        while queue.waiting:  # after an error of the harness the others are judged with baselines of their own
            with Judge(problem, cases, device, starter, plan.settings, baselines, on_event, ahead) as judge:
                sound = True
                while queue.waiting and sound:
                    submission = queue.waiting.pop(0)
                    if queue.waiting and not turn.is_timed and not starter.forks:
                        starter.start_ahead(workers=2, compilers=0)
                    next_workers = min(len(queue.waiting), NEXT_WORKERS) if turn.lets_workers_wait else 0
                    judged = partial(judge.evaluate, submission, queue.build, next_workers=next_workers)
                    evaluation, sound = _contained(judged, submission, turn)
                    if plan.sanitize and isinstance(evaluation, Accepted):
                        evaluation = sanitized(evaluation, submission, problem, cases, group.device, on_event)
                    yield msgspec.structs.replace(evaluation, **of_all)
                    if not sound:
                        ahead.end()
                    if queue.waiting:
                        wait_for_device(queue.build)


def _contained(judged: Callable[[], Evaluation], submission: Submission, turn: _Turn) -> tuple[Evaluation, bool]:
    """An evaluation, and whether the judge can go on: an error of the harness itself costs the others nothing."""
    try:
        with full_is_said():
            evaluation = judged()
        # After it the baselines, too, start anew: they may be in the middle of something, and hold much.
        return evaluation, evaluation.reason != Reason.NOT_ENOUGH_MEMORY
    except (HarnessError, UsageError):
        raise
    except Exception as error:
        message = f"{error} Run it again." if isinstance(error, JudgeFailed) else crash.report()
        common = fields_of_one(submission, turn.group, turn.plan)
        evaluation = Errored(**common, reason=Reason.HARNESS_ERROR, message=message, cases=[])
        return evaluation, False
