"""One submission from file to verdict: load, check every case, time, conclude."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from harness import against, verdict
from harness.device.base import Device
from harness.errors import Inconclusive, Stopped, StoppedWhileTimed, SubmissionError, name_of, of_the_judge
from harness.events import Building, DeviceTaken, OnEvent, TimesBegin, Timing
from harness.explanations import FailingCases
from harness.fitting import fit, room_on
from harness.isolation.sandbox import Worker
from harness.isolation.starter import Starter
from harness.judging import closer_look, replaced
from harness.judging.baselines import Baselines
from harness.judging.building import Ahead, Builds
from harness.judging.correctness import Correctness
from harness.judging.printed import printed_since
from harness.judging.runner import Runner, load_request, precompilation
from harness.notes import DetectorsSilent, MayRun, NoKernel, Note, NotTimed, OtherDefaults
from harness.oracle.draw import Draws
from harness.problem import Case, Problem
from harness.protocol.wire import Loaded, Precompilation
from harness.reasons import Reason
from harness.settings import VERDICT_TIMEOUTS, Settings
from harness.submission import Submission
from harness.timing.contest import Contest, TimedCases

DEVICE_FILLED = (
    "It got no memory of the GPU, of which others hold at least half. Run it again when there is room, or on another."
)


def _build_nothing() -> None:
    """Nothing is judged behind a submission."""


class Judge:
    """Judges submissions to one problem on one device; baselines are loaded once for all of them."""

    def __init__(
        self,
        problem: Problem,
        cases: Sequence[Case],
        device: Device,
        starter: Starter,
        settings: Settings,
        compared_with: Sequence[str],
        on_event: OnEvent,
        ahead: Ahead | None = None,
    ) -> None:
        """`ahead` is left running at the end."""
        self._starter = starter
        self._builds = Builds(device.name, starter, ahead)
        self._leaves_builds = ahead is not None
        self._may_run = replaced.may_run(problem)
        problem = replace(problem, allowed_ops=problem.allowed_ops | replaced.with_relatives(self._may_run))
        self._problem = problem
        self._name = name_of(problem.path)
        could_be_timed = [case.name for case in cases if case.timed] if settings.timing and device.can_time else []
        timed = could_be_timed[:1] if settings.one_timed_case else could_be_timed
        contenders = 2 + len(compared_with)  # the submission and the null kernel
        room = room_on(device.torch_device)
        fitted = [fit(problem, case, device, contenders if case.name in timed else 0, room) for case in cases]
        self._refusals = {each.case.name: each.refusal for each in fitted if each.refusal}
        self._smaller: list[Note] = [each.note for each in fitted if each.note]
        self._cases = cases = [each.case for each in fitted]
        self._device = device
        self._draws = Draws(problem, device, settings.seed)
        self._draws.compute_ahead(cases, further=device.name != "emulator")  # where each case gets some of them
        self._settings = settings
        self._on_event = on_event
        self._contest: Contest | None = None
        if timed:
            ready = [case for case in cases if case.name in timed and case.name not in self._refusals]
            null = self._start("null_kernel", problem.path)
            baselines = Baselines(compared_with, self._start, problem, device, settings)
            chosen = TimedCases(ready, untimed=len(could_be_timed) - len(timed))
            self._contest = Contest(problem, device, settings, chosen, null, baselines)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._draws.end_ahead()
        if not self._leaves_builds:
            self._builds.end()
        if self._contest:
            self._contest.end()

    def _start(
        self,
        kind: str,
        path: Path,
        sha256: str = "",
        rehearsed: bool = False,
        check: bool = False,
        worker: Worker | None = None,
    ) -> Runner:
        """With `check` under all detectors, whatever the settings say. In `worker`, if there is one."""
        settings = replace(self._settings, check=check or self._settings.check)
        request = load_request(kind, path, self._problem, settings)
        worker = worker or self._starter.take(keeps_compile_cache=kind in against.COMPILED)
        rehearsal = self._rehearsal() if rehearsed else ()
        return Runner(self._device, worker, request, sha256, self._settings.timeout_s, self._builds, rehearsal)

    def _rehearsal(self) -> list[Precompilation]:
        """All forms of calls, each once: what the kernels of some languages are compiled for when they are launched."""
        forms = [precompilation(self._problem, form) for case in self._cases for form in self._draws.cases_called(case)]
        return list({repr(form): form for form in forms}.values())

    # ------------------------------------------------------------------ one submission

    def evaluate(
        self, submission: Submission, build_others: Callable[[], None] = _build_nothing, *, next_workers: int = 0
    ) -> verdict.Evaluation:
        """Judge one submission; `build_others` begins builds of others that there is room for. Whatever the submission
        does becomes a verdict. Workers of the next ones, `next_workers`, load meanwhile, and do nothing while this one
        is timed.

        Raises HarnessError and UsageError for what is not the submission's doing, and StoppedWhileTimed."""
        self._on_event(Building(submission.name, self._name))
        with of_the_judge("A process that had run nothing yet"):
            runner = self._start_submission(submission)
        try:
            evaluation = self._evaluate(submission, runner, build_others, next_workers)
        finally:
            runner.end()
        evaluation = self._excused(evaluation)
        if self._settings.show_output:
            everything = printed_since(runner.worker, 0, "", everything=True)
            return msgspec.structs.replace(evaluation, printed=everything)
        return evaluation

    def _start_submission(self, submission: Submission) -> Runner:
        """In the worker that was started for it, if there is one that nobody has killed since. Raises SubmissionError,
        which is not the submission's doing."""
        start = partial(self._start, "submission", submission.path, submission.sha256, bool(submission.gpu_language))
        if started := self._starter.take_next():
            with contextlib.suppress(SubmissionError):
                return start(worker=started)
        return start()

    def _evaluate(
        self, submission: Submission, runner: Runner, build_others: Callable[[], None], next_workers: int
    ) -> verdict.Evaluation:
        common: dict[str, Any] = dict(
            problem=self._problem.name,
            submission=submission.name,
            source_sha256=submission.sha256,
            device=self._device.name,
            seed=self._settings.seed,
            effort=self._settings.effort,
            notes=[*([MayRun(operators=self._may_run)] if self._may_run else []), *self._smaller],
        )
        self._builds.begin_ahead(submission, check=self._settings.check)
        build_others()
        self._draws.draw_ahead(self._cases, lambda: runner.has_answered)
        try:
            common["build"] = _build(runner.finish_loading(partial(self._draws.draw_ahead, self._cases)))
        except Stopped as error:
            said = {"frame": runner.frame(error), "printed": printed_since(runner.worker, 0, "")}
            return _refusal(error, {**common, "cases": [], **said})
        finally:
            self._builds.end(submission)
        if next_workers:  # once this one has loaded, which they would slow
            self._starter.start_next(next_workers)
        build_others()
        correctness = Correctness(submission, self._problem, self._draws, self._device, self._settings, self._refusals)
        with self._device.turns.shared(partial(self._taken, submission)):
            correctness.run(runner, self._cases, self._on_event)
        common["cases"] = correctness.results
        if correctness.first_failure:
            failing = correctness.explain(runner)
            common |= {"cases": correctness.results, "printed": correctness.printed}
            common |= self._look_closer(submission, runner, correctness, common)
            return _rejection(_overall(correctness.first_failure, correctness.results), common, failing)
        if correctness.not_judged:
            return _refusal(correctness.not_judged, common)
        if correctness.out_of_time:
            return _refusal(_out_of_time(correctness.results, self._settings.verdict_s), common)
        if not common["build"] and not submission.builds and not submission.gpu_language:  # some build in __init__
            common["notes"].append(NoKernel())
        if others := self._problem.other_defaults(submission.defaults):
            common["notes"].append(OtherDefaults(arguments=others))
        common["notes"] += correctness.weak_data.notes()
        if not self._contest:
            return verdict.Accepted(**common, not_timed=_why_not_timed(self._settings, self._device))
        return self._time(submission, runner, self._contest, common)

    def _times_begin(self, submission: Submission, case: str) -> None:
        self._on_event(Timing(submission.name, self._name, case))

    def _taken(self, submission: Submission, process: int) -> None:
        self._on_event(DeviceTaken(submission.name, self._name, self._device.name, process))

    def _excused(self, evaluation: verdict.Evaluation) -> verdict.Evaluation:
        """What got no memory of a device that others had filled is not rejected for it. It has ended: it holds none."""
        if evaluation.reason != Reason.OUT_OF_MEMORY or not self._device.is_filled():
            return evaluation
        kept = {name: getattr(evaluation, name) for name in verdict.Errored.__struct_fields__}
        return verdict.Errored(**{**kept, "reason": Reason.NOT_ENOUGH_MEMORY, "message": DEVICE_FILLED})

    def _look_closer(
        self, submission: Submission, runner: Runner, correctness: Correctness, common: Mapping[str, Any]
    ) -> dict[str, Any]:
        """On the emulator, what all its detectors find in the case that the verdict is about: fields of an evaluation.
        The submission is built for them, which takes seconds."""
        failed = correctness.named_case()
        has_more = self._device.name == "emulator" and not self._settings.check
        if not has_more or not failed or not common["build"] or not closer_look.is_worth_it(failed):
            return {}
        runner.end()
        start = partial(self._start, "submission", submission.path, submission.sha256, check=True)
        looked, finding = closer_look.look(correctness, failed, self._cases, start)
        silent = [DetectorsSilent(case=failed.name)] if looked and not finding else []
        return {"finding": finding, "notes": [*common["notes"], *silent]}

    def _time(self, submission: Submission, runner: Runner, contest: Contest, common: dict) -> verdict.Evaluation:
        self._draws.end_ahead()
        self._starter.require_next()
        common |= {"cases": list(common["cases"])}
        try:
            runner.worker.pause()  # what it does meanwhile would slow the copies that measure the bandwidth
            contest.finish_loading()
            self._on_event(TimesBegin(submission.name))
            with self._device.turns.alone(partial(self._taken, submission)):
                begins = partial(self._times_begin, submission)
                times = contest.time(runner, self._draws, common["cases"], begins)
        except Stopped as error:
            return _refusal(error, common)
        except KeyboardInterrupt as stop:
            raise StoppedWhileTimed(verdict.Accepted(**common, not_timed=NotTimed.STOPPED)) from stop
        return times.added_to(verdict.Accepted(**common))


def _build(loaded: Loaded) -> verdict.Build | None:
    if not loaded.built:
        return None
    return verdict.Build(seconds=loaded.build_seconds, cached=loaded.build_cached, kernels=loaded.kernels)


def _refusal(error: Stopped, common: Mapping) -> verdict.Evaluation:
    variant = verdict.Errored if isinstance(error, Inconclusive) else verdict.Rejected
    return variant(reason=error.reason, message=error.message, **common)


def _rejection(error: SubmissionError, common: Mapping, failing: FailingCases | None) -> verdict.Evaluation:
    return msgspec.structs.replace(_refusal(error, common), failing=failing)


def _overall(error: SubmissionError, results: Sequence[verdict.Case]) -> SubmissionError:
    """The first failure, said with how many cases failed and which was the first."""
    failed = [case for case in results if isinstance(case, verdict.CaseFailed)]
    first = next((case for case in failed if case.reason == error.reason), failed[0])
    message = f"{len(failed)} of {len(results)} cases failed; '{first.name}': {error.message}"
    return SubmissionError(error.reason, message)


def _out_of_time(results: Sequence[verdict.Case], verdict_s: float) -> Inconclusive:
    """Cases that were run are right, and not all were. No rejection: the reference's own time is in it."""
    run = sum(isinstance(case, verdict.CasePassed) for case in results)
    message = (
        f"{run} of {len(results)} cases were judged, and are right, in {verdict_s:g} s. --timeout gives all of them "
        f"{VERDICT_TIMEOUTS} times as long as one call; -k chooses fewer."
    )
    return Inconclusive(Reason.TIMED_OUT, message)


def _why_not_timed(settings: Settings, device: Device) -> NotTimed:
    if not settings.timing:
        return NotTimed.NOT_ASKED
    return NotTimed.NO_CASE if device.can_time else NotTimed.EMULATED
