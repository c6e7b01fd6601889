"""Speedups of each case with their intervals, on a logarithmic axis with a line where nothing is gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import escape

from harness.report.figures import with_interval
from harness.report.site.charts.picture import RIGHT, TOP, WIDTH, Chart, Key, bottom_axis, line, picture, text, titled
from harness.report.site.charts.scale import Log, drawable, log_over
from harness.report.site.texts import plain, times
from harness.verdict import CasePassed, CaseTiming, Speedup

# Cases that one plot has room for.
MOST_CASES = 30
_LEFT, _BAR, _GAP, _UNDER = 112, 9, 9, 34

# What is compared, with its number among the series.
_EAGER, _FASTEST, _CAPTURED, _CAPTURED_FASTEST = 0, 1, 2, 3
_LABELS = ("over eager", "over the fastest baseline", "captured, over eager", "captured, over the fastest")


def speedups(cases: Sequence[CasePassed]) -> Chart | None:
    """Bars for each case; none where nothing was compared."""
    shown = [(case, found) for case in cases[:MOST_CASES] if (found := list(_compared(case)))]
    if not shown:
        return None
    ends = [end for _, found in shown for _, speedup in found for end in (*speedup.interval, speedup.ratio)]
    scale = log_over([1.0, *ends], _LEFT, WIDTH - RIGHT)
    bars: list[str] = []
    y = float(TOP)
    for case, found in shown:
        bars.append(_label(case.name, y + len(found) * _BAR / 2 + 4))
        for series, speedup in found:
            bars.append(_bar(scale, y, series, speedup, case.name))
            y += _BAR
        y += _GAP
    axis = bottom_axis(scale, times, "times as fast", y, TOP)
    one = line(scale.at(1), y, scale.at(1), TOP - 6, "one")
    used = sorted({series for _, found in shown for series, _ in found})
    left_out = len(cases) - len(shown)
    return Chart(
        "Speedup of each case",
        picture(WIDTH, y + _UNDER, _said(shown), [*axis, *bars, one]),
        [Key(_LABELS[series], series, "bar") for series in used],
        "The thick line is 1×, where nothing is gained. Whiskers are 95% intervals."
        + (f" {left_out} more cases stand in the table." if left_out else ""),
    )


def _compared(case: CasePassed) -> Iterator[tuple[int, Speedup]]:
    if case.timing is not None:
        yield from _of(case.timing, _EAGER, _FASTEST)
        if case.timing.captured:
            yield from _of(case.timing.captured, _CAPTURED, _CAPTURED_FASTEST)


def _of(timing: CaseTiming, eager: int, fastest: int) -> Iterator[tuple[int, Speedup]]:
    over_eager = timing.baselines["eager"].speedup if "eager" in timing.baselines else None
    for series, speedup in ((eager, over_eager), (fastest, timing.speedup_over_best)):
        if speedup and all(map(drawable, (speedup.ratio, *speedup.interval))):
            yield series, speedup


def _bar(scale: Log, y: float, series: int, speedup: Speedup, case: str) -> str:
    x, one = scale.at(speedup.ratio), scale.at(1)
    low, high = map(scale.at, speedup.interval)
    middle = y + (_BAR - 1) / 2
    bar = (
        f'<rect class="b s{series}" x="{min(x, one):.1f}" y="{y:.1f}" width="{abs(x - one):.1f}" height="{_BAR - 1}"/>'
    )
    ends = f"M{low:.1f} {middle - 2.5}v5M{high:.1f} {middle - 2.5}v5"
    whisker = f'<path class="whisker" d="M{low:.1f} {middle}H{high:.1f}{ends}"/>'
    return titled(bar + whisker, f"{case}: {with_interval(speedup.ratio, speedup.interval)} {_LABELS[series]}")


def _label(name: str, y: float) -> str:
    short = name if len(name) <= 16 else f"{name[:15]}…"
    return f"<g>{text(_LEFT - 6, y, short, 'tick', 'end')}<title>{escape(plain(name))}</title></g>"


def _said(shown: Sequence[tuple[CasePassed, list[tuple[int, Speedup]]]]) -> str:
    ratios = [f"{case.name} {found[0][1].ratio:.2f}×" for case, found in shown[:12]]
    return f"Speedups {_LABELS[shown[0][1][0][0]]} of {len(shown)} cases: {', '.join(ratios)}. The table has all."
