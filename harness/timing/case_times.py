"""The times of one part of a case, and the verdict values that are made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness import verdict
from harness.notes import SUBMISSION, Note
from harness.timing import roofline, stats
from harness.timing.rounds.contender import Contender


@dataclass(frozen=True)
class CaseTimes:
    """One part of a case with its contenders and their rounds, the submission first, and what else was seen.

    `late_bytes` are given to a call when the clock starts, `written_bytes` are what it gives; `bytes_min` is all."""

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
    on_processors: bool = False
    """Whether calls run on a CPU, so that processor time is what they cost."""
    conditions: verdict.Conditions | None = None
    """What was seen of the device meanwhile."""
    captured: CaseTimes | None = None
    """The same by rounds that launch CUDA graphs; None where there are none."""

    def samples_us(self, name: str) -> list[float]:
        return self.contenders[name].samples_us()

    @property
    def baselines(self) -> list[str]:
        return [name for name in self.contenders if name != SUBMISSION]


def timing_result(times: CaseTimes, bandwidth: float) -> verdict.CaseTiming:
    """What reports show of one part's samples; `bandwidth` is the device's, in bytes a second."""
    own = times.samples_us(SUBMISSION)
    baselines = {
        name: verdict.Baseline(
            **_timing(times, name),
            speedup=stats.speedup(times.samples_us(name), own),
            processor=_processor_use(times, name),
            version=times.versions[name],
        )
        for name in times.baselines
    }
    floor_us = roofline.floor_us(times.bytes_min, bandwidth)
    best = min(baselines.values(), key=lambda b: b.median_us, default=None)
    return verdict.CaseTiming(
        **_timing(times, SUBMISSION),
        processor=_processor_use(times, SUBMISSION),
        floor_us=floor_us,
        floor_fraction=floor_us / float(np.median(own)),
        bytes_min=times.bytes_min,
        launch_bound=times.launch_bound,
        baselines=baselines,
        speedup_over_best=best.speedup if best else None,
        conditions=times.conditions,
        captured=timing_result(times.captured, bandwidth) if times.captured else None,
    )


def _processor_use(times: CaseTimes, name: str) -> verdict.ProcessorUse | None:
    """What a call took of the processors, and the submission's speedup by that over a baseline."""
    if not times.on_processors:
        return None
    used_us, own_us = (times.contenders[who].processor_us() for who in (name, SUBMISSION))
    return verdict.ProcessorUse(
        median_us=float(np.median(used_us)),
        interval_us=stats.median_interval(used_us),
        speedup=None if name == SUBMISSION else stats.speedup(used_us, own_us),
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
