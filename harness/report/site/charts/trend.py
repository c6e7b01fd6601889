"""Speedups over time: every evaluation of a submission's name, and the best so far."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.site.charts.picture import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Key,
    left_axis,
    line,
    mark,
    picture,
    text,
    titled,
)
from harness.report.site.charts.scale import Linear, Log, drawable, log_over
from harness.report.site.texts import day, times
from harness.store import Glance

# Evaluations that the plot has room for, the latest of them.
MOST = 120
_THIS, _OTHER, _NONE = (
    Key("this source", 0, "circle"),
    Key("its name, another source", 1, "box"),
    Key("not accepted", 5, "cross"),
)


def trend(evaluations: Sequence[Glance], source_sha256: str) -> Chart | None:
    """The plot, where there is more than one evaluation. Oldest first, as they stand."""
    shown = evaluations[-MOST:]
    if len(shown) < 2:
        return None
    means = [glance.over_eager for glance in shown]
    ends = [end for mean in means if mean for end in (mean.value, *(mean.interval or ()))]
    x = Linear(-0.5, len(shown) - 0.5, LEFT, WIDTH - RIGHT)
    y = log_over([1.0, *ends], HEIGHT - BOTTOM, TOP)
    parts = [*left_axis(y, times, LEFT, WIDTH - RIGHT), line(LEFT, y.at(1), WIDTH - RIGHT, y.at(1), "one")]
    parts += [_best(shown, x, y), *(_point(n, glance, source_sha256, x, y) for n, glance in enumerate(shown))]
    for place, anchor, glance in ((LEFT, "start", shown[0]), (WIDTH - RIGHT, "end", shown[-1])):
        parts.append(text(place, HEIGHT - BOTTOM + 14, day(glance.date), "tick", anchor))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "evaluations, oldest first", "axis", "middle"))
    kinds = {_key(glance, source_sha256).label for glance in shown}
    keys = [key for key in (_THIS, _OTHER, _NONE) if key.label in kinds]
    said = f"Speedup over eager of {len(shown)} evaluations; the table below has them."
    return Chart(
        "Speedup over eager, over time",
        picture(WIDTH, HEIGHT, said, parts),
        [*keys, Key("best so far", 2, "dashes")],
        "Whiskers are 95% intervals. Evaluations by other judges and with other versions are among them.",
    )


def _key(glance: Glance, source_sha256: str) -> Key:
    if glance.over_eager is None:
        return _NONE
    return _THIS if glance.source_sha256 == source_sha256 else _OTHER


def _point(number: int, glance: Glance, source_sha256: str, x: Linear, y: Log) -> str:
    key, mean, at = _key(glance, source_sha256), glance.over_eager, x.at(number)
    if mean is None or not drawable(mean.value):
        return titled(mark(at, HEIGHT - BOTTOM - 6, _NONE.form, _NONE.series), f"{day(glance.date)}: {glance.status}")
    whisker = ""
    if mean.interval and all(map(drawable, mean.interval)):
        whisker = line(at, y.at(mean.interval[0]), at, y.at(mean.interval[1]), "whisker")
    title = f"{day(glance.date)}: {mean.value:.2f}×, {glance.submission}"
    return titled(whisker + mark(at, y.at(mean.value), key.form, key.series), title)


def _best(shown: Sequence[Glance], x: Linear, y: Log) -> str:
    """Steps of the best so far."""
    best, path = 0.0, ""
    for number, glance in enumerate(shown):
        value = glance.over_eager.value if glance.over_eager else 0.0
        if drawable(value) and value > best:
            path += f"V{y.at(value):.1f}" if path else f"M{x.at(number):.1f} {y.at(value):.1f}"
            best = value
        if path:
            path += f"H{x.at(number + 0.5):.1f}"
    return f'<path class="l s2 dashes" d="{path}"/>' if path else ""
