"""Timing one case: the submission and its baselines, by the judge's clock."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from harness import oracle, verdict
from harness.device.base import Device
from harness.errors import Inconclusive, JudgeFailed, Stopped, SubmissionError, of_the_judge
from harness.judging.runner import Runner
from harness.notes import (
    BaselineBelowNoise,
    BaselineEnded,
    BaselineLeftOut,
    BusyMachine,
    InputsUnchanged,
    Note,
)
from harness.oracle.draw import Drawn, draw_upstream, in_layout
from harness.problem import Problem
from harness.protocol.wire import TensorRef
from harness.reasons import Reason
from harness.settings import Settings, sub_seed
from harness.timing import device_time, roofline, stats
from harness.timing.background_load import NOTICED_SHARE, BackgroundLoad
from harness.timing.calls import buffer_count
from harness.timing.case_data import prepare_case
from harness.timing.clock import NULL_KERNEL, Clock
from harness.timing.contender import Contender
from harness.timing.data_set import DATA_SETS, DataSet
from harness.timing.input_pool import InputPool
from harness.timing.null_cost import NullCost
from harness.timing.schedule import Schedule


@dataclass(frozen=True)
class _Patience:
    """How long a case's rounds are, so that what the clock adds is small beside them, and when they end: once there are
    `least_rounds`, and either intervals are within the share `half_width` on either side or so many seconds have
    passed."""

    round_us: float
    least_rounds: int
    half_width: float
    budget_s: float


# On an H200 what a round costs beside its calls is mostly known to 100 µs or so: to 2% of 6 ms. From nine samples on,
# the interval of a median leaves out the two outermost; that of six is all of them.
_PATIENCE = {
    ("cpu", "quick"): _Patience(20_000.0, 6, 0.01, 0.5),
    ("cpu", "usual"): _Patience(20_000.0, 9, 0.01, 3.0),
    ("cpu", "thorough"): _Patience(20_000.0, 9, 0.0025, 20.0),
    ("cuda", "quick"): _Patience(3_000.0, 6, 0.01, 0.2),
    ("cuda", "usual"): _Patience(6_000.0, 9, 0.01, 0.6),
    ("cuda", "thorough"): _Patience(20_000.0, 9, 0.0025, 5.0),
}

# On an H200 rounds of honest kernels cost between 160 µs more than the null kernel's and 120 µs less.
ROUND_DOUBT_US = 150.0

SUBMISSION = "submission"


@dataclass(frozen=True)
class CaseTimes:
    """One part of a case with its contenders and their rounds, the submission first, and what else was seen.

    `late_bytes` are given to a call when the clock starts, `written_bytes` are what it gives; `bytes_min` is all."""

    drawn: Drawn
    part: str
    contenders: dict[str, Contender]
    launch_bound: bool
    late_bytes: int
    written_bytes: int
    device_times: dict[str, verdict.DeviceTime]
    bytes_min: int
    notes: list[Note]
    versions: dict[str, str]
    """Of baselines that are not made from the reference."""

    def samples_us(self, name: str) -> list[float]:
        return self.contenders[name].samples_us()

    @property
    def baselines(self) -> list[str]:
        return [name for name in self.contenders if name != SUBMISSION]


@dataclass(frozen=True)
class _Part:
    """What is timed: a case and the part of its call, the whole or only its forward or backward."""

    drawn: Drawn
    name: str

    @property
    def width(self) -> int:
        """How many of the tensors of a buffer a call is given."""
        return len(self.drawn.inputs) if self.name == "forward" else len(self.drawn.given)

    @property
    def read_bytes(self) -> int:
        return roofline.bytes_min(self.drawn.given[: self.width])

    @property
    def late_bytes(self) -> int:
        """What a call is given when the clock starts."""
        return roofline.bytes_min(self.drawn.given[self.early : self.width])

    @property
    def written_bytes(self) -> int:
        forms = [expected.form for expected in self.drawn.expected_of(self.name)]
        return roofline.bytes_min([torch.empty(form.shape, dtype=form.dtype, device="meta") for form in forms])

    @property
    def bytes_min(self) -> int:
        """Each tensor once: what is given, parameters, and what comes out."""
        return self.read_bytes + roofline.bytes_min(self.drawn.state.values()) + self.written_bytes

    @property
    def early(self) -> int:
        """Of the tensors of a buffer, how many the clock does not wait for: a backward's inputs."""
        return len(self.drawn.inputs) if self.name == "backward" else 0


class Timer:
    """Times cases on one device, with the null kernel that stays loaded between submissions."""

    def __init__(self, device: Device, problem: Problem, settings: Settings, null: Runner) -> None:
        self._device = device
        self._problem = problem
        self._settings = settings
        self._null = null
        self._patience = _PATIENCE[device.name, settings.effort]
        self.bandwidth = device.copy_bandwidth()
        """Copy bandwidth of the device, bytes a second; measured now, when nothing else should run."""

    def time_case(self, runner: Runner, baselines: Mapping[str, Runner], drawn: Drawn, name: str) -> list[CaseTimes]:
        """Each of the case's timed parts, the whole of it first.

        Raises SubmissionError when the submission fails while being timed. A baseline that fails is left out with
        a note."""
        if drawn.random:
            drawn = drawn.in_training()
        contenders: dict[str, Runner] = {}
        notes: list[Note] = []
        state = self._device.arena.lay_out([(t, "contiguous") for t in drawn.state.values()])
        with of_the_judge(NULL_KERNEL):
            self._null.construct(drawn, state)
        for label, contender in ((SUBMISSION, runner), *baselines.items()):
            try:
                contender.construct(drawn, state)
                contenders[label] = contender
            except SubmissionError as error:
                if contender is runner:
                    raise
                notes.append(BaselineLeftOut(baseline=label, why=error.message, case=name))
        parts = [_Part(drawn, part) for part in drawn.timed_parts]
        try:
            times = [self._time_part(part, name, contenders) for part in parts]
            runner.release()
        except Stopped:
            with contextlib.suppress(JudgeFailed):  # a null kernel that is gone is the next submission's to find
                self._release_others(contenders, name)  # which needs the memory
            raise
        notes += self._release_others(contenders, name)
        return [replace(times[0], notes=notes + times[0].notes), *times[1:]]

    def _release_others(self, contenders: Mapping[str, Runner], name: str) -> list[Note]:
        """Have the null kernel and the baselines let go of the case; a note on each baseline that cannot."""
        notes: list[Note] = []
        for label, contender in contenders.items():
            if label == SUBMISSION:
                continue
            try:
                contender.release()
            except SubmissionError as error:  # what is wrong with a baseline is nothing of the submission's
                notes.append(BaselineEnded(baseline=label, case=name, why=error.message))
        with of_the_judge(NULL_KERNEL):
            self._null.release()
        return notes

    def _time_part(self, part: _Part, name: str, runners: Mapping[str, Runner]) -> CaseTimes:
        buffers, sets = self._stage_data(part, name, workers=len(runners) + 1)
        data = prepare_case(self._device, part.drawn.function(part.name), sets, buffers, part.early)
        del sets  # what is needed of them has been copied
        contenders: list[Contender] = []
        notes: list[Note] = []
        shown = "" if part.name == part.drawn.timed_parts[0] else part.name
        for label, runner in runners.items():
            try:
                contenders.append(self._contender(label, runner, part, buffers))
            except SubmissionError as error:
                if label == SUBMISSION:
                    raise
                notes.append(BaselineLeftOut(baseline=label, why=error.message, case=name, part=shown))
        with of_the_judge(NULL_KERNEL):
            null = self._contender("null_kernel", self._null, part, buffers)
        clock = Clock(self._device, data, self._settings.timeout_s)
        null_cost = NullCost(clock, null, by_length=not self._device.is_cpu)
        schedule = Schedule(clock, null_cost, contenders, self._patience.round_us)
        if data.pool.changes_nothing:
            notes.append(InputsUnchanged(case=name, part=shown))
        patience, background = self._patience, BackgroundLoad()
        left_out = schedule.measure(patience.budget_s, patience.half_width, patience.least_rounds)
        notes += [BaselineLeftOut(baseline=label, why=why, case=name, part=shown) for label, why in left_out.items()]
        if self._device.is_cpu and (share := background.share()) >= NOTICED_SHARE:
            notes.append(BusyMachine(case=name, share=share, part=shown))
        for contender in self._leave_out_those_below_noise(contenders[1:]):
            notes.append(BaselineBelowNoise(baseline=contender.name, case=name, part=shown))
        times = CaseTimes(
            drawn=part.drawn,
            part=part.name,
            contenders={c.name: c for c in contenders if c.finished},
            launch_bound=self._launch_bound(contenders[0]),
            late_bytes=part.late_bytes,
            written_bytes=part.written_bytes,
            device_times=self._device_times(part, [c for c in contenders if c.finished], runners, data.pool),
            bytes_min=part.bytes_min,
            notes=notes,
            versions={label: runner.version for label, runner in runners.items()},
        )
        self._refuse_the_impossible(times)
        if contenders[0].below_noise():
            raise Inconclusive(
                Reason.TOO_NOISY,
                f"'{name}'{shown and f', {shown}'} could not be timed: rounds of the submission took no longer than "
                "rounds without any call. Something else keeps the machine busy; run it again when it is quiet.",
            )
        return times

    def _leave_out_those_below_noise(self, baselines: Sequence[Contender]) -> list[Contender]:
        """The baselines whose time cannot be told, which are no longer finished."""
        below_noise = [contender for contender in baselines if contender.finished and contender.below_noise()]
        for contender in below_noise:
            contender.finished = False
        return below_noise

    def _launch_bound(self, contender: Contender) -> bool:
        return not self._device.is_cpu and contender.launch_bound()

    def _device_times(
        self, part: _Part, contenders: Sequence[Contender], runners: Mapping[str, Runner], pool: InputPool
    ) -> dict[str, verdict.DeviceTime]:
        """The GPU's own times where they were asked for, and of a submission that is launch-bound. A backward alone
        has none: its forward would have to be done again and again."""
        times: dict[str, verdict.DeviceTime] = {}
        for contender in contenders:
            wanted = contender.name == SUBMISSION and self._launch_bound(contender)
            if self._device.is_cpu or part.early or not (wanted or self._settings.device_time):
                continue
            calls = range(min(pool.buffer_count, contender.calls))
            timed = device_time.of_a_call(runners[contender.name], calls, pool, in_a_graph=self._settings.device_time)
            times |= {contender.name: timed} if timed else {}
        return times

    def _refuse_the_impossible(self, times: CaseTimes) -> None:
        """Raises SubmissionError when the submission took less time than its bytes need.

        Where the reference itself does, as when it returns a view, the bytes need not be moved."""
        own = times.contenders[SUBMISSION]
        bound_us = roofline.impossible_us(
            times.late_bytes,
            times.written_bytes if times.part == "forward" else 0,  # gradients may be views of each other
            own.calls,
            self._device.cache_bytes,
            self.bandwidth,
            self._device.headroom,
        )
        doubt_us = own.null_spread_us() if self._device.is_cpu else ROUND_DOUBT_US
        took_us = own.at_most_us(doubt_us)
        eager = times.contenders.get("eager")
        if took_us < bound_us and not (eager and eager.at_most_us(doubt_us) < bound_us):
            raise SubmissionError(
                Reason.IMPOSSIBLE_TIME,
                f"A call took at most {max(took_us, 0):.3g} µs, and its inputs and outputs cannot be moved in less "
                f"than {bound_us:.3g} µs at the bandwidth measured here: the work was not done in the call.",
            )

    def _stage_data(self, part: _Part, name: str, workers: int) -> tuple[list[list[TensorRef]], list[DataSet]]:
        """Draw the data sets and lay the buffers out."""
        drawn = part.drawn
        floor_us = roofline.floor_us(part.bytes_min, self.bandwidth)
        results = roofline.bytes_min(_outputs(drawn))  # a backward holds the outputs of its forward, too
        if drawn.differentiation:
            results += results // 2  # and what its forward stored for it
        count = buffer_count(self._device, self._patience.round_us, floor_us, part.read_bytes, results, workers)
        sets = [self._data_set(part, name, i) for i in range(DATA_SETS)]
        layouts = drawn.layouts[: part.width]
        given = [pair for i in range(count) for pair in zip(sets[i % DATA_SETS].inputs, layouts, strict=True)]
        refs = self._device.arena.lay_out(given)
        width = part.width
        return [refs[i * width : (i + 1) * width] for i in range(count)], sets

    def _data_set(self, part: _Part, name: str, number: int) -> DataSet:
        seed = sub_seed(self._settings.seed, name, "timed", number)
        drawn = part.drawn
        inputs = self._problem.draw_inputs(drawn.case, seed, self._device.torch_device)
        given = [*inputs, *draw_upstream(drawn.upstream, drawn.case.upstream, seed)][: part.width]
        laid_out = [in_layout(tensor, layout) for tensor, layout in zip(given, drawn.layouts, strict=False)]
        expected = oracle.expect_more(
            drawn.function(part.name),
            laid_out,
            seed,
            drawn.expected_of(part.name),
            stores=drawn.differentiation is not None,
        )
        if number:  # what the pool tries, it tries on the first
            expected = [replace(e, values=e.values.new_empty(0)) for e in expected]
        return DataSet(given, expected)

    def _contender(self, name: str, runner: Runner, part: _Part, buffers: Sequence[list[TensorRef]]) -> Contender:
        drawn = part.drawn
        runner.stage(
            list(buffers),
            drawn.expected_of(part.name),
            part.name,
            drawn.differentiation,
            constants=drawn.case.constants,
        )
        return Contender(name, runner.worker, runner.reader, trusted=runner.trusted)


def _outputs(drawn: Drawn) -> list[torch.Tensor]:
    return [torch.empty(e.form.shape, dtype=e.form.dtype, device="meta") for e in drawn.expected]


def timing_result(times: CaseTimes, bandwidth: float) -> verdict.CaseTiming:
    """What reports show of one case's samples."""
    own = times.samples_us(SUBMISSION)
    baselines = {
        name: verdict.Baseline(
            **_timing(times, name),
            speedup=stats.speedup(times.samples_us(name), own),
            version=times.versions[name],
        )
        for name in times.baselines
    }
    floor_us = roofline.floor_us(times.bytes_min, bandwidth)
    best = min(baselines.values(), key=lambda b: b.median_us, default=None)
    return verdict.CaseTiming(
        **_timing(times, SUBMISSION),
        floor_us=floor_us,
        floor_fraction=floor_us / float(np.median(own)),
        bytes_min=times.bytes_min,
        launch_bound=times.launch_bound,
        baselines=baselines,
        speedup_over_best=best.speedup if best else None,
    )


def _timing(times: CaseTimes, name: str) -> dict:
    contender, device = times.contenders[name], times.device_times.get(name)
    samples_us = contender.samples_us()
    return dict(
        median_us=float(np.median(samples_us)),
        interval_us=stats.median_interval(samples_us),
        samples_us=samples_us,
        calls_per_round=contender.calls,
        fixed_us=contender.fixed_us(),
        issue_us=contender.median_issue_us(),
        device=device,
    )
