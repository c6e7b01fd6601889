"""Whether a submission computes what the reference computes, case by case."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import oracle, verdict
from harness.device.base import Device
from harness.diagnosis import Evidence, OnWrong
from harness.errors import Inconclusive, Stopped, SubmissionError, memory_is_said, name_of, one_line
from harness.events import Judging, OnEvent
from harness.explanations import FailingCases
from harness.judging import backward, randomness, repeated
from harness.judging.diagnosed import Witness, failing
from harness.judging.observe import Observation, Seen, same_bits
from harness.judging.printed import printed_since
from harness.judging.runner import Runner
from harness.judging.weak_data import WeakData
from harness.oracle import dropout
from harness.oracle.draw import Drawn, Draws
from harness.paths import ROOT
from harness.problem import Case, Problem
from harness.protocol.wire import Ran
from harness.reasons import ENDS_THE_WORKER, Reason
from harness.settings import Settings, sub_seed
from harness.submission import Submission

# On the emulator both orders of threads must give the right result, and what it saw names a device error.
EMULATED_ORDERS = ("forward", "random")

# Runs whose bits are compared where a problem asks for it and threads take the order that they take.
DETERMINISM_RUNS = 4

# After so many cases whose kernel did not end, each of which takes the emulator's limit, there is nothing to learn.
ENDLESS_CASES = 2


def check_case(
    runner: Runner,
    problem: Problem,
    drawn: Drawn,
    seed: int,
    steps: Sequence[str] = tuple(repeated.STEPS),
    on_wrong: OnWrong = lambda _: None,
) -> tuple[list[oracle.Comparison], Ran]:
    """Run one case, several times where the order of threads must not matter, then further calls by `steps`, and
    compare everything.

    Returns the first run's comparisons, or those of the run that failed. `on_wrong` is told of a wrong result. Raises
    SubmissionError."""
    reference = drawn.reference
    observation = Observation(runner, reference, drawn.data, further=drawn.further)
    observation.stage(reference.call, drawn.expected, train=reference.judged_in_training)
    runs: list[tuple[list[oracle.Comparison], Seen]] = []
    for number, order in enumerate(_orders(runner.device, problem)):
        keeps = number == 0 and drawn.further is not None
        seen = observation.call(order, seed + number, keeps=keeps, strides=False)
        comparisons = oracle.compare_all(seen.tensors, drawn.expected)
        if not all(c.ok for c in comparisons):  # where strides are wrong as well, the values are what to mend first
            before = [earlier.tensors for _, earlier in runs]
            on_wrong(Evidence(reference, drawn.data, drawn.expected, seen.tensors, same_data=before))
            return comparisons, seen.ran
        observation.require_strides(seen)
        runs.append((comparisons, seen))
    if problem.deterministic:
        _require_same_bits([seen for _, seen in runs], drawn.expected)
    repeated.check(observation, drawn, runs[0][1], seed, steps, on_wrong)
    if reference.differentiation:
        backward.require_accumulation(observation, drawn.expected, seed)
    if reference.random:
        randomness.check(observation, drawn, seed, dropout.FALSE_ALARM_RATE / len(problem.cases))
    if reference.case.gradcheck:  # last: it stages what is its own
        backward.gradcheck(runner, drawn, seed)
    comparisons, seen = runs[0]
    return comparisons, seen.ran


def _orders(device: Device, problem: Problem) -> Sequence[str]:
    if device.name == "emulator":
        return EMULATED_ORDERS
    return ("forward",) * (DETERMINISM_RUNS if problem.deterministic else 1)


def _require_same_bits(runs: Sequence[Seen], expected: Sequence[oracle.Expected]) -> None:
    for seen in runs[1:]:
        for first, again, wanted in zip(runs[0].tensors, seen.tensors, expected, strict=True):
            if not same_bits(first, again):
                differ = int((first != again).sum())
                raise SubmissionError(
                    Reason.NOT_DETERMINISTIC,
                    f"{differ:,} of {first.numel():,} elements of {wanted.form.name} had other bits in a second run on "
                    "the same data. Sums whose order depends on timing, such as atomic additions, do that; add "
                    "partial sums in a fixed order.",
                )


def case_result(
    drawn: Drawn, name: str, comparisons: Sequence[oracle.Comparison], ran: Ran, repeat: str
) -> verdict.Case:
    """The verdict on one case from the comparison of each output."""
    worst = max(range(len(comparisons)), key=lambda i: _badness(comparisons[i], drawn.expected[i]))
    comparison, wanted = comparisons[worst], drawn.expected[worst]
    ratio = comparison.error / wanted.reference_error if wanted.reference_error else 0.0
    common: dict[str, Any] = dict(
        name=name,
        shape=drawn.reference.case.shape_text,
        scaled=drawn.reference.scaled,
        dtype=drawn.reference.case.dtype_text,
        error=comparison.error,
        tolerance=wanted.tolerance,
        error_ratio=ratio,
    )
    if all(c.ok for c in comparisons):
        return verdict.CasePassed(**common, counts=ran.counts)
    at = ", ".join(map(str, comparison.worst_index))
    beside = f" ({ratio:,.0f} times eager's own error)" if wanted.form.dtype.is_floating_point else ""
    return verdict.CaseFailed(
        **common,
        reason=Reason.WRONG_OUTPUT,
        message=f"{comparison.message}; the worst, at [{at}], is {comparison.got:.9g} and should be "
        f"{comparison.expected:.9g}{beside}.",
        repeat=repeat,
        worst=verdict.Worst(
            output=worst, index=list(comparison.worst_index), got=comparison.got, expected=comparison.expected
        ),
    )


def _badness(comparison: oracle.Comparison, wanted: oracle.Expected) -> float:
    return comparison.error / wanted.tolerance if wanted.tolerance else comparison.error


def repeat_command(
    submission: Submission, problem: Problem, device: Device, case: str, seed: int, *, check: bool = False
) -> str:
    """The command that judges this case again, on the same data and with the same detectors, for a shell in the folder
    where this program was started."""
    here = Path.cwd()

    def relative(path: Path) -> str:
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    of = ["--problem", relative(problem.path), "--device", device.name, *(["--check"] if check else [])]
    words = ["python", relative(ROOT / "eval.py"), relative(submission.path), *of, "-k", case, "--seed", str(seed)]
    return one_line(shlex.join(words))


class Correctness:
    """Judges every case of one submission and keeps what was found, whatever happens on the way."""

    def __init__(
        self,
        submission: Submission,
        problem: Problem,
        draws: Draws,
        device: Device,
        settings: Settings,
        refusals: Mapping[str, str] | None = None,
    ) -> None:
        """`refusals` says of cases, by name, why they are not judged here."""
        self._submission = submission
        self._problem = problem
        self._draws = draws
        self._device = device
        self._settings = settings
        self._refusals = refusals or {}
        self._steps: dict[str, tuple[str, ...]] = {}
        self._cases: Sequence[Case] = ()
        self._witness = Witness()
        self._endless = 0
        """Cases in which a kernel did not end."""
        self.weak_data = WeakData()
        self.out_of_time = False
        """Whether cases were left out since all of them together took too long."""
        self.not_judged: Inconclusive | None = None
        """Why a case was not judged: too little memory for it, or what the emulator cannot do."""
        self.printed: verdict.Printed | None = None
        """What was printed in the case of `first_failure`."""
        self.results: list[verdict.Case] = []
        self.first_failure: SubmissionError | None = None

    def named_case(self) -> verdict.CaseFailed | None:
        """The failed case that the verdict is about: the first with the reason of `first_failure`."""
        reason = self.first_failure.reason if self.first_failure else None
        failed = [case for case in self.results if isinstance(case, verdict.CaseFailed)]
        return next((case for case in failed if case.reason == reason), failed[0] if failed else None)

    def judge_again(self, runner: Runner, case: Case) -> verdict.Case:
        """One case once more, by a worker whose extensions are built for all detectors."""
        checked = replace(self._settings, check=True)
        fresh = Correctness(self._submission, self._problem, self._draws, self._device, checked)
        fresh._steps = self._steps
        return fresh._judge(runner, case)

    def run(self, runner: Runner, cases: Sequence[Case], on_event: OnEvent) -> None:
        self._cases = cases
        self._steps = repeated.deal([case.name for case in cases], self._settings.seed)
        ends_s = time.monotonic() + self._settings.verdict_s
        for number, case in enumerate(cases, 1):
            on_event(Judging(self._submission.name, name_of(self._problem.path), case.name, number, len(cases)))
            self.out_of_time = self.out_of_time or time.monotonic() > ends_s
            if why := self._why_not_run(runner):
                self.results.append(self._not_run(case, f"Not run: {why}."))
            elif why := self._refusals.get(case.name, ""):
                self.results.append(self._without_verdict(case, Reason.NOT_ENOUGH_MEMORY, f"Not run: {why}."))
            else:
                self.results.append(self._judged(runner, case))

    def explain(self, runner: Runner) -> FailingCases | None:
        """Add to the results why they are wrong, and say which of the cases fail. Nothing more can be asked of `runner`
        afterwards."""
        self.results = self._witness.explained(runner, self._as_run())
        return failing(self._as_run())

    def _as_run(self) -> list[tuple[Case, verdict.Case]]:
        """The cases as the device ran them, with their verdicts."""
        return [(case.on(self._device.name), result) for case, result in zip(self._cases, self.results, strict=True)]

    def _why_not_run(self, runner: Runner) -> str:
        """Why no more cases are run; empty where they are."""
        failure = self.first_failure
        if failure and failure.reason in ENDS_THE_WORKER:
            return "an earlier case ended the process"
        if runner.worker.has_ended and not failure:
            return "its process had to end when memory was used up"
        if failure and self._settings.first_failure:
            return "an earlier case failed (-x)"
        if self._endless >= ENDLESS_CASES:
            return f"in {ENDLESS_CASES} cases a kernel did not end"
        if self.out_of_time:
            return f"those before it took {self._settings.verdict_s:g} s together; --timeout gives more"
        return ""

    def _judged(self, runner: Runner, case: Case) -> verdict.Case:
        """As `_judge`; where memory ran out, of the judge's own or by others' doing, or the emulator lacks something,
        what was seen before stays."""
        try:
            with memory_is_said(f"case '{case.name}'"):
                return self._judge(runner, case)
        except Inconclusive as error:
            reason, message = error.reason, error.message  # and not the error, which holds what it passed
        self._end_of_a_call(runner)
        return self._without_verdict(case, reason, message)

    def _end_of_a_call(self, runner: Runner) -> None:
        """Go on with a worker that was left in the middle of something, if it can."""
        try:
            if not runner.worker.has_ended:
                runner.release()
        except Stopped:
            runner.end()

    def _without_verdict(self, case: Case, reason: Reason, message: str) -> verdict.Case:
        self.not_judged = self.not_judged or Inconclusive(reason, f"'{case.name}': {message}")
        return self._not_run(case, message)

    def _judge(self, runner: Runner, case: Case) -> verdict.Case:
        seed = self._settings.seed
        drawn = self._draws.draw(case)
        self.weak_data.add(drawn)
        check = self._settings.check
        repeat = repeat_command(self._submission, self._problem, self._device, case.name, seed, check=check)
        before, known = runner.worker.home.printed_bytes(), self.first_failure
        try:
            steps = self._steps[case.name] if self._device.name == "emulator" else tuple(repeated.STEPS)
            order = sub_seed(seed, case.name, "order")
            on_wrong = self._witness.of(case.name)
            try:
                comparisons, ran = check_case(runner, self._problem, drawn, order, steps, on_wrong)
            except Inconclusive:
                if not runner.worker.has_ended:
                    runner.release()  # a worker that only said so may have said more
                raise
            runner.release()
        except SubmissionError as error:
            self._note_failure(runner, error)
            if self.first_failure is not known:
                self.printed = printed_since(runner.worker, before, case.name)
            return verdict.CaseFailed(
                name=case.name,
                shape=drawn.reference.case.shape_text,
                scaled=drawn.reference.scaled,
                dtype=drawn.reference.case.dtype_text,
                reason=error.reason,
                message=error.message,
                repeat=repeat,
                frame=runner.frame(error),
                also=list(error.also),
            )
        result = case_result(drawn, case.name, comparisons, ran, repeat)
        if isinstance(result, verdict.CaseFailed) and self.first_failure is None:
            self.first_failure = SubmissionError(Reason.WRONG_OUTPUT, result.message)
            self.printed = printed_since(runner.worker, before, case.name)
        return result

    def _note_failure(self, runner: Runner, error: SubmissionError) -> None:
        """Remember the first failure, or the one that ended the worker; free what a living one holds."""
        self._endless += error.reason == Reason.ENDLESS_KERNEL
        if self.first_failure is None or error.reason in ENDS_THE_WORKER:
            self.first_failure = error
        if error.reason in ENDS_THE_WORKER:
            runner.end()
            return
        try:
            runner.release()
        except Inconclusive:
            runner.end()  # the case has failed all the same
        except SubmissionError as second:
            self.first_failure = second

    def _not_run(self, case: Case, message: str) -> verdict.Case:
        shown = case.on(self._device.name)
        return verdict.CaseNotRun(
            name=case.name,
            shape=shown.shape_text,
            scaled=shown is not case,
            dtype=shown.dtype_text,
            message=message,
        )
