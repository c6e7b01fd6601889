"""Samples in the order in which they were measured: drift, and what the GPU's clock did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from harness.report.figures import duration
from harness.report.site.charts.picture import Chart, Key, dots, left_axis, picture, polyline, text, titled
from harness.report.site.charts.scale import Linear, drawable, linear_over, thinned
from harness.report.words import held_down_by
from harness.verdict import CasePassed, CaseTiming, Conditions, Timing

# Cases that a page has room for.
MOST_CASES = 30

# A drift below this share is not told.
LEAST_DRIFT = 0.02

# Samples that a plot has room for: of more, some are shown.
MOST_SAMPLES = 60
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 260, 120, 48, 8, 8, 100
KEYS = (
    Key("submission", 0, "circle"),
    Key("eager, beside it", 1, "line"),
    Key("SM clock, where it changed", 6, "dashes"),
)


def samples(cases: Sequence[CasePassed]) -> list[Chart]:
    """A small plot for each case that was timed."""
    return [_chart(case.name, case.timing) for case in cases[:MOST_CASES] if case.timing and _samples(case.timing)]


def _samples(timing: Timing) -> list[float]:
    """Those that have a place on an axis."""
    return [value for value in timing.samples_us if drawable(value)]


def _chart(name: str, timing: CaseTiming) -> Chart:
    every = _samples(timing)
    mine = thinned(every, MOST_SAMPLES)
    x = Linear(0, max(len(mine) - 1, 1), _LEFT, _WIDTH - _RIGHT)
    interval = [end for end in timing.interval_us if drawable(end)]
    y = linear_over([*mine, *interval], _BOTTOM, _TOP)
    parts = left_axis(y, duration, _LEFT, _WIDTH - _RIGHT)
    parts += [_band(interval, y), *_clock(timing.conditions), *_eager(timing, y)]
    parts.append(polyline([(x.at(n), y.at(us)) for n, us in enumerate(mine)], "l s0 thin"))
    parts.append(dots([(x.at(n), y.at(us)) for n, us in enumerate(mine)], 0))
    parts.append(text((_LEFT + _WIDTH) / 2, _HEIGHT - 5, "round, in order", "tick", "middle"))
    drift = _drift(every)
    said = f"{name}: {len(every)} rounds from {duration(min(every))} to {duration(max(every))}. {drift}"
    return Chart(name, picture(_WIDTH, _HEIGHT, said, parts), (), " ".join(filter(None, (drift, _seen(timing)))))


def _band(interval: Sequence[float], y: Linear) -> str:
    """The 95% interval of the median, behind the samples."""
    if len(interval) < 2:
        return ""
    top, bottom = sorted(map(y.at, interval))
    box = f'x="{_LEFT}" y="{top:.1f}" width="{_WIDTH - _RIGHT - _LEFT}" height="{max(bottom - top, 1):.1f}"'
    return f'<rect class="band" {box}/>'


def _eager(timing: CaseTiming, y: Linear) -> list[str]:
    """Eager's samples of the same rounds over its median, so that what both share is seen."""
    eager = timing.baselines.get("eager")
    found = thinned(_samples(eager), MOST_SAMPLES) if eager else []
    if not found or eager is None or not drawable(eager.median_us):
        return []
    x = Linear(0, max(len(found) - 1, 1), _LEFT, _WIDTH - _RIGHT)
    factor = timing.median_us / eager.median_us
    return [polyline([(x.at(n), y.at(us * factor)) for n, us in enumerate(found)], "l s1 thin")]


def _rounds(conditions: Conditions) -> list[float]:
    return [float(mhz) for mhz in conditions.sm_mhz_of_rounds if mhz is not None]


def _clock(conditions: Conditions | None) -> list[str]:
    """The SM clock of each round where it changed, on a scale of its own."""
    found = _rounds(conditions) if conditions else []
    if not found or min(found) == max(found):
        return []
    drawn = thinned(found, MOST_SAMPLES)
    x = Linear(0, max(len(drawn) - 1, 1), _LEFT, _WIDTH - _RIGHT)
    y = linear_over(found, _BOTTOM, _TOP)
    line = polyline([(x.at(n), y.at(mhz)) for n, mhz in enumerate(drawn)], "l s6 dashes thin")
    return [titled(line, f"SM clock from {min(found):.0f} to {max(found):.0f} MHz")]


def _drift(found: Sequence[float]) -> str:
    """How the second half compares with the first, where that is more than LEAST_DRIFT and than neighbours differ."""
    if len(found) < 6:
        return ""
    half = len(found) // 2
    first, second = median(found[:half]), median(found[-half:])
    step = median([abs(b - a) for a, b in pairwise(found)])
    if abs(second - first) <= max(2 * step, LEAST_DRIFT * first):
        return ""
    change = second / first - 1
    return f"Drifts: the second half takes {abs(change):.1%} {'longer' if change > 0 else 'less'}."


def _seen(timing: CaseTiming) -> str:
    """What NVML saw of it, if it saw anything amiss."""
    seen = timing.conditions
    if seen is None:
        return ""
    said = []
    if seen.throttled:
        said.append(f"Throttled: {held_down_by(seen.throttled)}.")
    if seen.discarded:
        said.append(f"{seen.discarded} sets of rounds were played again.")
    clocks = _rounds(seen)
    if clocks and min(clocks) < max(clocks):
        said.append(f"SM at {min(clocks):.0f} to {max(clocks):.0f} MHz.")
    return " ".join(said)
