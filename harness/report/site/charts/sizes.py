"""Times and bandwidths against the bytes that a call must move, beside baselines and the floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.report.figures import duration
from harness.report.site.charts.picture import (
    BOTTOM,
    FORMS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Key,
    bottom_axis,
    left_axis,
    mark,
    picture,
    polyline,
    titled,
)
from harness.report.site.charts.scale import Log, drawable, log_over
from harness.report.site.texts import bytes_of, rate
from harness.verdict import CasePassed, CaseTiming, Timing

# Cases that one plot has room for.
MOST_CASES = 30

_FLOOR = "floor"
_X_TITLE = "bytes that a call must move"
_Words = Callable[[float], str]


@dataclass(frozen=True)
class Point:
    """A case's place in a series."""

    nbytes: float
    value: float
    case: str


@dataclass(frozen=True)
class Series:
    """What is drawn in one colour."""

    key: Key
    points: Sequence[Point]

    @property
    def is_line(self) -> bool:
        return self.key.form in ("line", "dashes")


def times_by_size(cases: Sequence[CasePassed], submission: str) -> Chart | None:
    """Times of the submission and of all baselines, and the floor."""
    measured = list(_measured(cases))
    if not measured:
        return None
    floor = [Point(timing.bytes_min, timing.floor_us, case) for case, timing in measured]
    series = [
        Series(Key(_FLOOR, 7, "dashes"), floor),
        *(Series(key, _points(measured, key.label, _time)) for key in _baselines(measured)),
        *_captured(measured, _time),
        Series(Key(submission, 0, "circle"), [Point(t.bytes_min, t.median_us, case) for case, t in measured]),
    ]
    return _chart("Time against size", series, duration, "Each mark is a case. The floor moves every byte once.")


def roofline(cases: Sequence[CasePassed], submission: str) -> Chart | None:
    """How many bytes a second the submission moves, below the roofs of memory and of launches: what it computes is
    little beside what it moves, so that memory is the roof. After S. Williams, A. Waterman and D. Patterson, Roofline,
    CACM 52 (2009), with bytes of a call in place of operations a byte."""
    measured = [(case, timing) for case, timing in _measured(cases) if drawable(timing.bytes_min)]
    if not measured:
        return None
    bandwidth = max(timing.bytes_min / timing.floor_us for _, timing in measured)
    issued_us = [timing.issue_us for _, timing in measured if drawable(timing.issue_us)]
    sizes = [float(timing.bytes_min) for _, timing in measured]
    series = [
        Series(Key("memory", 7, "dashes"), [Point(size, bandwidth, "memory") for size in (min(sizes), max(sizes))])
    ]
    if issued_us:
        launch_us = min(issued_us)
        ends = [min(sizes), min(max(sizes), bandwidth * launch_us)]
        slope = [Point(size, size / launch_us, f"a call returns after {duration(launch_us)}") for size in ends]
        series.append(Series(Key("Python and launch", 6, "line"), slope if ends[1] > ends[0] else []))
    series += [
        *_captured(measured, _rate),
        Series(Key(submission, 0, "circle"), [Point(t.bytes_min, _rate(t, t), case) for case, t in measured]),
    ]
    caption = f"Memory gives {rate(bandwidth)}, measured by a copy."
    if issued_us:
        caption += " Short calls are held up by Python and the launch, as the submission's process tells it."
    return _chart("Roofline", [one for one in series if one.points], rate, caption)


def _measured(cases: Sequence[CasePassed]) -> Iterator[tuple[str, CaseTiming]]:
    for case in cases[:MOST_CASES]:
        timing = case.timing
        if timing and all(map(drawable, (timing.bytes_min, timing.median_us, timing.floor_us))):
            yield case.name, timing


def _baselines(measured: Sequence[tuple[str, CaseTiming]]) -> list[Key]:
    found = dict.fromkeys(name for _, timing in measured for name in timing.baselines)
    return [Key(name, 1 + n % 5, FORMS[1 + n % 7]) for n, name in enumerate(found)]


def _points(
    measured: Sequence[tuple[str, CaseTiming]], name: str, value: Callable[[CaseTiming, Timing], float]
) -> list[Point]:
    found = [(case, timing, timing.baselines[name]) for case, timing in measured if name in timing.baselines]
    return [Point(t.bytes_min, value(t, b), case) for case, t, b in found if drawable(b.median_us)]


def _captured(
    measured: Sequence[tuple[str, CaseTiming]], value: Callable[[CaseTiming, Timing], float]
) -> Iterator[Series]:
    found = [(case, t, t.captured) for case, t in measured if t.captured and drawable(t.captured.median_us)]
    if found:
        yield Series(Key("captured", 0, "ring"), [Point(t.bytes_min, value(t, c), case) for case, t, c in found])


def _time(_case: CaseTiming, timing: Timing) -> float:
    return timing.median_us


def _rate(case: CaseTiming, timing: Timing) -> float:
    return case.bytes_min / timing.median_us


def _chart(title: str, series: Sequence[Series], words: _Words, caption: str) -> Chart:
    points = [point for one in series for point in one.points]
    x = log_over([point.nbytes for point in points], LEFT, WIDTH - RIGHT)
    y = log_over([point.value for point in points], HEIGHT - BOTTOM, TOP)
    parts = bottom_axis(x, bytes_of, _X_TITLE, HEIGHT - BOTTOM, TOP) + left_axis(y, words, LEFT, WIDTH - RIGHT)
    for one in series:
        parts += _drawn(one, x, y, words)
    return Chart(title, picture(WIDTH, HEIGHT, _said(title, series, words), parts), [s.key for s in series], caption)


def _drawn(series: Series, x: Log, y: Log, words: _Words) -> Iterator[str]:
    ordered = sorted(series.points, key=lambda point: point.nbytes)
    places = [(x.at(point.nbytes), y.at(point.value)) for point in ordered]
    if series.is_line:
        yield polyline(places, f"l s{series.key.series} {series.key.form}")
        return
    for point, place in zip(ordered, places, strict=True):
        title = f"{point.case}: {words(point.value)}, {series.key.label}"
        yield titled(mark(*place, series.key.form, series.key.series), title)


def _said(title: str, series: Sequence[Series], words: _Words) -> str:
    points = next((one.points for one in series if one.key.form == "circle"), [])
    values = ", ".join(f"{point.case} {words(point.value)}" for point in points[:12])
    return f"{title} of the submission: {values}. The table has all."
