"""Timing one case: the submission and its baselines, by the judge's clock."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.device.base import Device
from harness.errors import JudgeFailed, Stopped, SubmissionError, of_the_judge
from harness.judging.runner import Runner
from harness.notes import (
    SUBMISSION,
    BaselineBelowNoise,
    BaselineEnded,
    BaselineLeftOut,
    BusyMachine,
    FasterThanMemory,
    InputsUnchanged,
    NotCaptured,
    Note,
)
from harness.oracle.draw import CaseForms
from harness.problem import Problem
from harness.settings import Settings
from harness.timing import concluding
from harness.timing.background_load import NOTICED_SHARE
from harness.timing.case_times import CaseTimes
from harness.timing.measuring import Measured, measure
from harness.timing.part import Part
from harness.timing.patience import PATIENCE
from harness.timing.rounds.clock import NULL_KERNEL
from harness.timing.rounds.contender import Contender
from harness.timing.staging import StagedPart, Staging


class Timer:
    """Times cases on one device, with the null kernel that stays loaded between submissions."""

    def __init__(self, device: Device, problem: Problem, settings: Settings, null: Runner) -> None:
        self._device = device
        self._settings = settings
        self._null = null
        self._patience = PATIENCE[device.name, settings.effort]
        self._bandwidth = device.bandwidth()  # now, when nothing else should run
        self._staging = Staging(device, problem, settings, self._patience, self._bandwidth.copy)

    @property
    def copy_bandwidth(self) -> float:
        """Bytes a second of a large copy on the device."""
        return self._bandwidth.copy

    def time_case(
        self, runner: Runner, baselines: Mapping[str, Runner], forms: CaseForms, name: str
    ) -> list[CaseTimes]:
        """Each of the case's timed parts, the whole of it first.

        Raises SubmissionError when the submission fails while being timed. A baseline that fails is left out with
        a note."""
        contenders, notes = self._construct(runner, baselines, forms, name)
        parts = [Part(forms, part, name) for part in forms.reference.timed_parts]
        try:
            times = [self._time_part(part, contenders) for part in parts]
            # Asked before the first of them lets go: each would see room enough where all of them keep too much.
            everything = not self._device.has_room()
            runner.release(everything=everything)
        except Stopped:
            with contextlib.suppress(JudgeFailed):  # a null kernel that is gone is the next submission's to find
                self._release_others(contenders, name, everything=True)  # the next submission needs the memory
            raise
        notes += self._release_others(contenders, name, everything=everything)
        return [replace(times[0], notes=notes + times[0].notes), *times[1:]]

    # ------------------------------------------------------------------ the case's models

    def _construct(
        self, runner: Runner, baselines: Mapping[str, Runner], forms: CaseForms, name: str
    ) -> tuple[dict[str, Runner], list[Note]]:
        """Have everybody build the case's model. Returns who did, the submission first, and a note on who did not."""
        reference = forms.reference
        contenders: dict[str, Runner] = {}
        notes: list[Note] = []
        state = self._device.arena.lay_out([(t, "contiguous") for t in reference.state.values()])
        with of_the_judge(NULL_KERNEL):
            self._null.construct(reference, state)
        for label, contender in ((SUBMISSION, runner), *baselines.items()):
            try:
                contender.construct(reference, state)
                contenders[label] = contender
            except SubmissionError as error:
                if contender is runner:
                    raise
                notes.append(BaselineLeftOut(baseline=label, why=error.message, case=name))
        return contenders, notes

    def _release_others(self, contenders: Mapping[str, Runner], name: str, *, everything: bool) -> list[Note]:
        """Have the null kernel and the baselines let go of the case; a note on each baseline that cannot."""
        notes: list[Note] = []
        for label, contender in contenders.items():
            if label == SUBMISSION:
                continue
            try:
                contender.release(everything=everything)
            except SubmissionError as error:  # what is wrong with a baseline is nothing of the submission's
                notes.append(BaselineEnded(baseline=label, case=name, why=error.message))
        with of_the_judge(NULL_KERNEL):
            self._null.release(everything=everything)
        return notes

    # ------------------------------------------------------------------ one part

    def _time_part(self, part: Part, runners: Mapping[str, Runner]) -> CaseTimes:
        """A time below what memory allows, within its interval, is measured once more, and has a note if it stays."""
        times = self._time_once(part, runners)
        if self._is_faster_than_memory(times):
            times = self._time_once(part, runners)
            if self._is_faster_than_memory(times):
                times.notes.append(FasterThanMemory(case=part.case, part=part.shown))
        if not part.shown:  # parts have no rank
            times.notes.extend(concluding.too_noisy(times, self._device, part.case))
        return times

    def _is_faster_than_memory(self, times: CaseTimes) -> bool:
        both = [times, times.captured] if times.captured else [times]
        return any(concluding.is_faster_than_memory(kind, self._device, self._bandwidth.best) for kind in both)

    def _refuse_the_impossible(self, times: CaseTimes) -> None:
        """Raises SubmissionError. Before a time is called impossible the bandwidth is measured again: something may
        have kept the memory busy before."""
        if concluding.is_impossible(times, self._device, self._bandwidth.best):
            self._bandwidth = self._bandwidth.or_better(self._device.bandwidth())
        concluding.refuse_the_impossible(times, self._device, self._bandwidth.best)

    def _time_once(self, part: Part, runners: Mapping[str, Runner]) -> CaseTimes:
        staged = self._staging.stage(part, workers=len(runners) + 1)
        contenders, notes = self._contenders(staged, runners)
        with of_the_judge(NULL_KERNEL):
            null = staged.contender("null_kernel", self._null)
        measured = self._measure(staged, null, contenders)
        notes += self._notes(staged, measured)
        for contender in concluding.leave_out_those_below_noise(contenders[1:]):
            notes.append(BaselineBelowNoise(baseline=contender.name, case=part.case, part=part.shown))
        times = self._concluded(staged, null, contenders, runners)
        times = replace(times, conditions=measured.conditions)
        if self._settings.device_time and concluding.can_be_captured(self._device, part):
            finished = [contender for contender in contenders if contender.finished]
            times = replace(times, device_times=concluding.device_times(finished, runners, staged.data.pool))
        if concluding.can_be_captured(self._device, part):
            captured, more = self._time_captured(staged, null, contenders, runners)
            times, notes = replace(times, captured=captured), notes + more
        return replace(times, notes=notes)

    def _measure(self, staged: StagedPart, null: Contender, contenders: Sequence[Contender]) -> Measured:
        self._device.trim()  # of the verdicts and of the cases before, while no clock runs
        return measure(self._device, staged.data, null, contenders, self._patience, self._settings.timeout_s)

    def _concluded(
        self, staged: StagedPart, null: Contender, contenders: Sequence[Contender], runners: Mapping[str, Runner]
    ) -> CaseTimes:
        """The times of who is finished. Raises SubmissionError and Inconclusive for the submission's."""
        part = staged.part
        times = concluding.case_times(part, contenders, runners, self._device)
        given_back_bytes = part.written_bytes if self._device.is_cpu else 0  # on a GPU torch keeps them
        allowed_s = concluding.allowed_beside_s(self._device)
        no_room = self._device.free_bytes() < part.written_bytes
        concluding.refuse_work_beside_the_clock(contenders[0], null, given_back_bytes, allowed_s, no_room=no_room)
        concluding.refuse_work_left_on_the_device(contenders[0])
        self._refuse_the_impossible(times)
        concluding.require_a_time(contenders[0], part)
        return times

    def _time_captured(
        self, staged: StagedPart, null: Contender, contenders: Sequence[Contender], runners: Mapping[str, Runner]
    ) -> tuple[CaseTimes | None, list[Note]]:
        """The times of CUDA graphs of the calls, and notes on who has none; no times without the submission's."""
        case = staged.part.case
        again = [c.anew(captured=True) for c in contenders if c.finished and not runners[c.name].launches_graphs]
        null = null.anew(captured=False)
        left_out: dict[str, str] = {}
        notes: list[Note] = []
        try:
            for contender in again:
                contender.reader.forget()  # the worker gives memory back before it captures
            measured = self._measure(staged, null, again)
            left_out = measured.left_out
            for contender in concluding.leave_out_those_below_noise(again[1:]):
                left_out[contender.name] = "its time was lost in the noise of a busy machine."
            times = replace(self._concluded(staged, null, again, runners), conditions=measured.conditions)
            notes += concluding.disturbed(measured.conditions, staged.part, captured=True)
        except Stopped as error:
            left_out[SUBMISSION] = concluding.captured_fault(error, has_ended=runners[SUBMISSION].worker.has_ended)
            times = None
        finally:
            for contender in again:
                contender.reader.forget()
        notes += [NotCaptured(implementation=name, why=why, cases=[case]) for name, why in left_out.items()]
        return times, notes

    def _contenders(self, staged: StagedPart, runners: Mapping[str, Runner]) -> tuple[list[Contender], list[Note]]:
        """Who is ready to be timed, the submission first, and a note on each baseline that is not."""
        part = staged.part
        contenders: list[Contender] = []
        notes: list[Note] = []
        for label, runner in runners.items():
            try:
                contenders.append(staged.contender(label, runner))
            except SubmissionError as error:
                if label == SUBMISSION:
                    raise
                notes.append(BaselineLeftOut(baseline=label, why=error.message, case=part.case, part=part.shown))
        return contenders, notes

    def _notes(self, staged: StagedPart, measured: Measured) -> list[Note]:
        """What was seen while measuring."""
        case, shown = staged.part.case, staged.part.shown
        notes: list[Note] = [InputsUnchanged(case=case, part=shown)] if staged.data.pool.changes_nothing else []
        for label, why in measured.left_out.items():
            notes.append(BaselineLeftOut(baseline=label, why=why, case=case, part=shown))
        if measured.busy_share >= NOTICED_SHARE:
            notes.append(BusyMachine(case=case, share=measured.busy_share, part=shown))
        notes += concluding.disturbed(measured.conditions, staged.part)
        return notes
