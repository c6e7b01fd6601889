"""What plots are made of: a frame with axes, marks, and a legend.

Numbers are written with a digit behind the point; every text goes through `text` or `titled`, which escape it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from harness.report.site.charts.scale import Scale
from harness.report.site.texts import plain

WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 54, 20, 10, 38

# Marks of series, each with another form as well as another colour.
FORMS = ("circle", "square", "diamond", "up", "down", "cross", "ring", "box")


@dataclass(frozen=True)
class Key:
    """A series in a legend."""

    label: str
    series: int
    form: str
    """One of FORMS, `line`, `dashes` or `bar`."""

    @property
    def svg(self) -> Markup:
        """The mark beside the label."""
        return picture(18, 12, "", [sample(self)], classes="key", decorative=True)


@dataclass(frozen=True)
class Chart:
    """A plot as it stands on a page."""

    title: str
    svg: Markup
    keys: Sequence[Key] = ()
    caption: str = ""


def picture(
    width: float, height: float, label: str, parts: Iterable[str], *, classes: str = "chart", decorative: bool = False
) -> Markup:
    """The whole picture; `label` is what a screen reader says of it."""
    said = 'aria-hidden="true"' if decorative else f'role="img" aria-label="{escape(plain(label))}"'
    return Markup(f'<svg class="{classes}" viewBox="0 0 {width:.0f} {height:.0f}" {said}>{"".join(parts)}</svg>')


def text(x: float, y: float, words: str, classes: str = "", anchor: str = "") -> str:
    """Words in a picture."""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{classes}"{anchored}>{escape(plain(words))}</text>'


def titled(mark: str, title: str) -> str:
    """A mark with what a pointer that rests on it is told."""
    return f"<g>{mark}<title>{escape(plain(title))}</title></g>"


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    return f'<path class="{classes}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def polyline(points: Sequence[tuple[float, float]], classes: str) -> str:
    """A line through all points; nothing for fewer than two."""
    if len(points) < 2:
        return ""
    return f'<path class="{classes}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def mark(x: float, y: float, form: str, series: int, size: float = 3.5) -> str:
    """A point of a series."""
    outline = _OUTLINES[form](size)
    return f'<path class="m s{series} {form}" d="M{x:.1f} {y:.1f}{outline}"/>'


def dots(points: Sequence[tuple[float, float]], series: int) -> str:
    """Points of a series that need no words of their own."""
    return f'<path class="dots s{series}" d="{"".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)}"/>'


def sample(key: Key) -> str:
    """A key's mark, in a picture of 18 by 12."""
    if key.form == "bar":
        return f'<rect class="b s{key.series}" x="2" y="2" width="14" height="8"/>'
    if key.form in ("line", "dashes"):
        return line(1, 6, 17, 6, f"l s{key.series} {key.form}")
    return mark(9, 6, key.form, key.series, 4)


def bottom_axis(scale: Scale, words: Callable[[float], str], title: str, y: float, top: float) -> list[str]:
    """Ticks with their values below `y`, grid lines up to `top`, and what the axis is of."""
    parts = []
    for tick in scale.ticks():
        x = scale.at(tick)
        parts += [line(x, y, x, top, "grid"), text(x, y + 13, words(tick), "tick", "middle")]
    middle = (scale.at(float("-inf")) + scale.at(float("inf"))) / 2
    return [*parts, text(middle, y + 29, title, "axis", "middle")]


def left_axis(scale: Scale, words: Callable[[float], str], x: float, right: float) -> list[str]:
    """Ticks with their values left of `x`, and grid lines to `right`."""
    parts = []
    for tick in scale.ticks():
        y = scale.at(tick)
        parts += [line(x, y, right, y, "grid"), text(x - 5, y + 3.5, words(tick), "tick", "end")]
    return parts


_OUTLINES: dict[str, Callable[[float], str]] = {
    "circle": lambda r: f"m{-r} 0a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
    "ring": lambda r: f"m{-r} 0a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z",
    "square": lambda r: f"m{-r} {-r}h{2 * r}v{2 * r}h{-2 * r}z",
    "box": lambda r: f"m{-r} {-r}h{2 * r}v{2 * r}h{-2 * r}z",
    "diamond": lambda r: f"m0 {-1.3 * r}l{1.3 * r} {1.3 * r}l{-1.3 * r} {1.3 * r}l{-1.3 * r} {-1.3 * r}z",
    "up": lambda r: f"m0 {-1.2 * r}l{1.2 * r} {2.2 * r}h{-2.4 * r}z",
    "down": lambda r: f"m0 {1.2 * r}l{1.2 * r} {-2.2 * r}h{-2.4 * r}z",
    "cross": lambda r: f"m{-r} {-r}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
}
