"""Who a submission is timed with, and its times on all cases that are timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from harness import verdict
from harness.device.base import Device
from harness.errors import memory_is_said, of_the_judge
from harness.judging.baselines import Baselines
from harness.judging.runner import Runner
from harness.notes import SUBMISSION, NotCaptured, Note, OneCaseTimed, TooNoisyToRank
from harness.oracle.draw import Draws
from harness.problem import Case, Problem
from harness.settings import Settings
from harness.timing import stats
from harness.timing.case_times import CaseTimes, timing_result
from harness.timing.rounds.clock import NULL_KERNEL
from harness.timing.timer import Timer


@dataclass(frozen=True)
class TimedCases:
    """The cases that are timed, and how many others could be."""

    cases: Sequence[Case]
    untimed: int


@dataclass(frozen=True)
class Times:
    """A submission's, on all cases that are timed."""

    cases: Sequence[CaseTimes]
    notes: Sequence[Note]
    of_baselines: Sequence[Note]
    """Notes that are of no case."""

    def added_to(self, accepted: verdict.Accepted) -> verdict.Accepted:
        """`accepted` with the geometric means over all cases, and with the notes."""
        captured = [times.captured for times in self.cases if times.captured]
        of_graphs = verdict.Geomeans(**_geomeans(captured)) if captured and len(captured) == len(self.cases) else None
        notes = [*self.of_baselines, *accepted.notes, *together(self.notes)]
        means = _geomeans(self.cases)
        return noted_if_wide(msgspec.structs.replace(accepted, notes=notes, captured=of_graphs, **means))


class Contest:
    """Times submissions together with the null kernel and the baselines, which are loaded once for all of them."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        settings: Settings,
        timed: TimedCases,
        null: Runner,
        baselines: Baselines,
    ) -> None:
        """The compilers among `baselines` begin with what will be timed."""
        self._problem = problem
        self._device = device
        self._settings = settings
        self._timed = timed
        self._null = null
        self._baselines = baselines
        self._timer: Timer | None = None
        baselines.precompile(timed.cases)

    def end(self) -> None:
        self._null.worker.kill()  # a process with a CUDA context takes a while to go: all at once
        self._baselines.end()
        self._null.end()

    def finish_loading(self) -> None:
        """Wait for the null kernel and the baselines. Raises JudgeFailed for the one; of the others a note is left."""
        if self._timer is None:
            with of_the_judge(NULL_KERNEL):
                self._null.finish_loading()
            self._baselines.finish_loading()

    def time(self, runner: Runner, draws: Draws, results: list[verdict.Case], begins: Callable[[str], None]) -> Times:
        """Time the submission on the device that it has alone. `results`, of all cases, get their timings as these are
        known; `begins` is told the name of each that is timed.

        Raises SubmissionError and Inconclusive for what is the submission's."""
        if self._timer is None:  # it measures the bandwidth
            self._timer = Timer(self._device, self._problem, self._settings, self._null)
        notes: list[Note] = []
        if self._timed.untimed:
            notes.append(OneCaseTimed(case=self._timed.cases[0].name, untimed=self._timed.untimed))
        timed: list[CaseTimes] = []
        places = {result.name: place for place, result in enumerate(results)}
        for case in self._timed.cases:
            begins(case.name)
            times, result = self._time_case(self._timer, runner, draws, case, results[places[case.name]], notes)
            timed.append(times)
            results[places[case.name]] = result
        return Times(timed, notes, self._baselines.notes)

    def _time_case(
        self, timer: Timer, runner: Runner, draws: Draws, case: Case, result: verdict.Case, notes: list[Note]
    ) -> tuple[CaseTimes, verdict.Case]:
        with memory_is_said(f"the times of case '{case.name}'"):
            baselines, left_out = self._baselines.right_on(case.name, partial(draws.draw, case))
            times, *parts = timer.time_case(runner, baselines, draws.forms(case), case.name)
        notes += [*left_out, *times.notes, *(note for part in parts for note in part.notes)]
        of_parts = {part.part: timing_result(part, timer.copy_bandwidth) for part in parts}
        return times, _with_timing(result, timing_result(times, timer.copy_bandwidth), of_parts)


def noted_if_wide(accepted: verdict.Accepted) -> verdict.Accepted:
    """With a note where the speedup that decides its rank is not known well enough."""
    if not accepted.has_wide_speedup:
        return accepted
    assert accepted.geomean_speedup is not None and accepted.geomean_interval is not None
    note = TooNoisyToRank(reaches={"eager": verdict.reach(accepted.geomean_speedup, accepted.geomean_interval)})
    return msgspec.structs.replace(accepted, notes=[*accepted.notes, note])


def _with_timing(case: verdict.Case, timing: verdict.CaseTiming, parts: dict[str, verdict.CaseTiming]) -> verdict.Case:
    assert isinstance(case, verdict.CasePassed)
    return msgspec.structs.replace(case, timing=timing, parts=parts)


def together(notes: Sequence[Note]) -> list[Note]:
    """`notes`, in one for all cases where an implementation has no captured time on several, and for the same reason.
    The first of them says where it stands."""
    cases: dict[tuple[str, str], list[str]] = {}
    for note in notes:
        if isinstance(note, NotCaptured):
            cases.setdefault((note.implementation, note.why), []).extend(note.cases)
    merged: list[Note] = []
    for note in notes:
        if isinstance(note, NotCaptured):
            named = list(dict.fromkeys(cases.pop((note.implementation, note.why), [])))
            note = NotCaptured(implementation=note.implementation, why=note.why, cases=named)
            if not named:
                continue
        merged.append(note)
    return merged


def _geomeans(timed: Sequence[CaseTimes]) -> dict:
    """Geometric means over eager, and over each case's fastest baseline, with their intervals."""
    over_eager = [(t.samples_us("eager"), t.samples_us(SUBMISSION)) for t in timed if "eager" in t.contenders]
    over_best = []
    for times in timed:
        others = [times.samples_us(name) for name in times.baselines]
        if others:
            over_best.append((min(others, key=statistics.median), times.samples_us(SUBMISSION)))
    fields: dict = {}
    if len(over_eager) == len(timed):
        mean = stats.geomean_speedup(over_eager)
        fields |= dict(geomean_speedup=mean.ratio, geomean_interval=mean.interval)
    if len(over_best) == len(timed):
        mean = stats.geomean_speedup(over_best)
        fields |= dict(geomean_speedup_over_best=mean.ratio, geomean_over_best_interval=mean.interval)
    return fields
