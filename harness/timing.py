"""Timing one case: the submission and its baselines, by the judge's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from harness import oracle, roofline, stats, verdict
from harness.clock import Clock, Contender, slot_count
from harness.dealing import DATA_SETS, DataSet, Dealer
from harness.device.base import Device
from harness.draw import Drawn, in_layout
from harness.errors import SubmissionError
from harness.problem import Problem
from harness.runner import Runner
from harness.settings import Settings, sub_seed
from harness.wire import TensorRef

# How long the rounds of one case may go on when the intervals stay wide.
BUDGET_S = {"cpu": 3.0, "cuda": 0.6}
QUICK_BUDGET_S = {"cpu": 1.0, "cuda": 0.2}

SUBMISSION = "submission"


@dataclass(frozen=True)
class CaseTimes:
    """One case's contenders with their rounds, the submission first, and what else was seen."""

    drawn: Drawn
    contenders: dict[str, Contender]
    launch_bound: bool
    bytes_min: int
    notes: list[str]

    def samples_us(self, name: str) -> list[float]:
        return self.contenders[name].samples_us()

    @property
    def baselines(self) -> list[str]:
        return [name for name in self.contenders if name != SUBMISSION]


class Timer:
    """Times cases on one device, with the baselines and the stub that stay loaded between submissions."""

    def __init__(self, device: Device, problem: Problem, settings: Settings, baselines: Mapping[str, Runner],
                 stub: Runner) -> None:  # fmt: skip
        self._device = device
        self._problem = problem
        self._settings = settings
        self._baselines = baselines
        self._stub = stub
        self._bandwidth = 0.0

    @property
    def bandwidth(self) -> float:
        """Copy bandwidth of the device, bytes a second; measured at the first use in this run."""
        if not self._bandwidth:
            self._bandwidth = self._device.copy_bandwidth()
        return self._bandwidth

    def time_case(self, runner: Runner, drawn: Drawn, name: str) -> CaseTimes:
        """Raises SubmissionError when the submission fails while being timed. A baseline that fails is
        left out with a note."""
        slots, sets = self._stage_data(drawn, name)
        dealer = Dealer(self._device, drawn.model, sets, slots, sub_seed(self._settings.seed, name, "dealing"))
        contenders = [self._contender(SUBMISSION, runner, drawn, slots)]
        notes: list[str] = []
        for label, baseline in self._baselines.items():
            try:
                contenders.append(self._contender(label, baseline, drawn, slots))
            except SubmissionError as error:
                notes.append(f"{label} was left out: {error.message}")
        stub = self._contender("stub", self._stub, drawn, slots)
        seed = sub_seed(self._settings.seed, name, "clock")
        clock = Clock(self._device, dealer, stub, seed, self._settings.timeout_s)
        budgets = QUICK_BUDGET_S if self._settings.quick else BUDGET_S
        notes += clock.measure(contenders, budgets[self._device.name])
        times = CaseTimes(
            drawn=drawn,
            contenders={c.name: c for c in contenders if c.finished},
            launch_bound=self._launch_bound(contenders[0]),
            bytes_min=self._bytes_min(drawn),
            notes=[f"'{name}': {note}" for note in notes],
        )
        self._refuse_the_impossible(times)
        for used in (runner, *self._baselines.values(), self._stub):
            used.release()
        return times

    def _launch_bound(self, contender: Contender) -> bool:
        median_us = float(np.median(contender.samples_us()))
        return not self._device.is_cpu and contender.launch_bound(median_us)

    def _refuse_the_impossible(self, times: CaseTimes) -> None:
        """Raises SubmissionError when the submission took less time than its bytes need."""
        own = times.contenders[SUBMISSION]
        bound_us = roofline.impossible_us(
            roofline.bytes_min(times.drawn.inputs),
            roofline.bytes_min(_outputs(times.drawn)),
            own.calls,
            self._device.cache_bytes,
            self.bandwidth,
            self._device.headroom,
        )
        median_us = float(np.median(own.samples_us()))
        if median_us < bound_us:
            raise SubmissionError(
                "impossible_time",
                f"A call took {median_us:.3g} µs, and its inputs and outputs cannot be moved in less than "
                f"{bound_us:.3g} µs at the bandwidth measured here: the work was not done in the call.",
            )

    def _bytes_min(self, drawn: Drawn) -> int:
        return roofline.bytes_min(drawn.inputs, drawn.state.values(), _outputs(drawn))

    def _stage_data(self, drawn: Drawn, name: str) -> tuple[list[list[TensorRef]], list[DataSet]]:
        """Draw the data sets and lay weights and slots out."""
        floor_us = roofline.floor_us(self._bytes_min(drawn), self.bandwidth)
        read_bytes, written_bytes = roofline.bytes_min(drawn.inputs), roofline.bytes_min(_outputs(drawn))
        count = slot_count(self._device, floor_us, read_bytes, written_bytes)
        sets = [self._data_set(drawn, name, i) for i in range(DATA_SETS)]
        state = [(t, "contiguous") for t in drawn.state.values()]
        inputs = [(t, drawn.case.layout) for i in range(count) for t in sets[i % DATA_SETS].inputs]
        refs = self._device.arena.lay_out(state + inputs)
        self._state_refs = refs[: len(state)]
        rest = refs[len(state) :]
        width = len(drawn.inputs)
        return [rest[i * width : (i + 1) * width] for i in range(count)], sets

    def _data_set(self, drawn: Drawn, name: str, number: int) -> DataSet:
        seed = sub_seed(self._settings.seed, name, "timed", number)
        inputs = self._problem.draw_inputs(drawn.case, seed, self._device.torch_device)
        laid_out = [in_layout(tensor, drawn.case.layout) for tensor in inputs]
        return DataSet(inputs, oracle.expect_more(drawn.model, laid_out, seed, drawn.expected))

    def _contender(self, name: str, runner: Runner, drawn: Drawn, slots: Sequence[list[TensorRef]]) -> Contender:
        runner.construct(drawn, self._state_refs)
        runner.stage(list(slots), drawn.expected)
        return Contender(name, runner.worker, runner.reader)


def _outputs(drawn: Drawn) -> list[torch.Tensor]:
    return [torch.empty(e.form.shape, dtype=e.form.dtype, device="meta") for e in drawn.expected]


def timing_result(times: CaseTimes, bandwidth: float) -> verdict.CaseTiming:
    """What reports show of one case's samples."""
    own = times.samples_us(SUBMISSION)
    baselines = {
        name: verdict.Baseline(**_timing(times.contenders[name]), speedup=stats.speedup(times.samples_us(name), own))
        for name in times.baselines
    }
    floor_us = roofline.floor_us(times.bytes_min, bandwidth)
    best = min(baselines.values(), key=lambda b: b.median_us, default=None)
    return verdict.CaseTiming(
        **_timing(times.contenders[SUBMISSION]),
        floor_us=floor_us,
        floor_fraction=floor_us / float(np.median(own)),
        bytes_min=times.bytes_min,
        launch_bound=times.launch_bound,
        baselines=baselines,
        speedup_over_best=best.speedup if best else None,
    )


def _timing(contender: Contender) -> dict:
    samples_us = contender.samples_us()
    return dict(
        median_us=float(np.median(samples_us)),
        interval_us=stats.median_interval(samples_us),
        samples_us=samples_us,
        calls_per_round=contender.calls,
        fixed_us=contender.fixed_us(),
    )
