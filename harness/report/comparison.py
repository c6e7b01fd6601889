"""A comparison of two evaluations for people."""

from __future__ import annotations

import difflib

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from harness.comparison import Comparison, Difference, Mean, Row, Side
from harness.comparison.values import Judged, shown
from harness.errors import one_line, printable
from harness.report.figures import NO_DIFFERENCE, duration, with_interval
from harness.report.tables import Column, print_columns
from harness.store.pairs import SHOWN_DIGITS

_STYLE = {Difference.FASTER: "green", Difference.SLOWER: "red", Difference.NONE: ""}

# Lines around a change of a source.
CONTEXT_LINES = 3


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Both sides, the table, and what decided."""
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        _say(console, f"{name}  {_described(side)}")
    for difference in comparison.differs:
        _say(console, f"Times may differ for this alone: {difference}.", "yellow")
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        if side.why_untimed:
            _say(console, f"{name} has no times to compare: {side.why_untimed}", "red")
    if comparison.rows:
        print_columns(console, "", _columns([*comparison.rows, *comparison.means]))
        _say(console, _summary(comparison), "bold")
        _explain(console, comparison)
    _say_left_out(console, comparison)


def _described(side: Side) -> str:
    facts = [side.problem, side.submission, side.device, f"source {side.source_sha256[:SHOWN_DIGITS]}"]
    facts += [side.date[:16].replace("T", " ")] if side.date else []
    facts += [side.effort] if side.effort != "usual" else []
    return " · ".join([*facts, side.found_in])


def _columns(lines: list[Row | Mean]) -> list[Column]:
    rows = [line if isinstance(line, Row) else None for line in lines]
    return [
        Column("case", [Text(one_line(_name(line))) for line in lines], "left"),
        Column("A", [Text(duration(row.a_us) if row else "") for row in rows]),
        Column("B", [Text(duration(row.b_us) if row else "") for row in rows]),
        Column("B is", [Text(_word(line.difference), style=_STYLE[line.difference]) for line in lines], "left"),
        Column("B over A [95%]", [Text(_speed(line)) for line in lines]),
        Column("floor", [Text(f"{line.floor:.1%}") for line in lines]),
        Column("seen from", [Text(_seen(line)) for line in lines]),
        Column("", [Text(_label(line)) for line in lines], "left"),
    ]


def _word(difference: Difference) -> str:
    return NO_DIFFERENCE if difference is Difference.NONE else difference


def _name(line: Row | Mean) -> str:
    return line.name if isinstance(line, Row) else shown("geometric mean", "", line.kind)


def _speed(line: Judged) -> str:
    return with_interval(line.speed.ratio, line.speed.interval, digits=3)


def _seen(line: Judged) -> str:
    return "–" if line.smallest_seen is None else f"{line.smallest_seen:.1%}"


def _label(line: Row | Mean) -> str:
    """Why little is known of it."""
    if isinstance(line, Mean):
        return "in doubt" if line.smallest_seen is None else ""
    return line.doubt or ("launch-bound" if line.launch_bound else "")


def _summary(comparison: Comparison) -> str:
    """In a sentence."""
    sure = [row for row in comparison.rows if not row.doubt]
    said = {str(d): sum(row.difference is d for row in sure) for d in Difference}
    said["in doubt"] = len(comparison.rows) - len(sure)
    of = f"{len(comparison.rows)} time{'s' * (len(comparison.rows) != 1)}"
    return f"B is {', '.join(f'{what} on {number}' for what, number in said.items() if number)} of {of}."


def _explain(console: Console, comparison: Comparison) -> None:
    _say(console, f"By {comparison.test}.", "dim")
    _say(console, f"B over A: of speeds, so that more than 1 is faster. {NO_DIFFERENCE}: no different.", "dim")
    _say(console, "floor: so much may differ from run to run where the source does not.", "dim")
    _say(console, "seen from: so large a difference is found in four comparisons of five.", "dim")


def _say_left_out(console: Console, comparison: Comparison) -> None:
    for name, side, only in (("A", comparison.a, comparison.only_in_a), ("B", comparison.b, comparison.only_in_b)):
        if only and not (comparison.a.why_untimed or comparison.b.why_untimed):
            _say(console, f"timed in {name} alone ({side.submission}): {'; '.join(only)}", "dim")


def print_sources(console: Console, comparison: Comparison, a: bytes | None, b: bytes | None) -> None:
    """How the sources differ, where both are known."""
    if comparison.a.source_sha256 == comparison.b.source_sha256:
        _say(console, "Both are of the same source.")
    elif a is None or b is None:
        unknown = " and ".join(name for name, text in (("A", a), ("B", b)) if text is None)
        _say(console, f"The source of {unknown} is not known here: no diff.")
    else:
        console.print()
        _print_diff(console, difference(comparison, a, b))


def difference(comparison: Comparison, a: bytes, b: bytes) -> str:
    """A unified diff, without characters that a terminal obeys."""
    before, after = (printable(text.decode(errors="replace")).splitlines() for text in (a, b))
    names = [f"{x}/{one_line(side.submission)}.py" for x, side in (("A", comparison.a), ("B", comparison.b))]
    return "\n".join(difflib.unified_diff(before, after, names[0], names[1], n=CONTEXT_LINES, lineterm=""))


def _print_diff(console: Console, diff: str) -> None:
    """A line of a source is one here, too, so that it can be copied."""
    coloured = console.is_terminal and not console.no_color
    text = Syntax("", "diff", theme="ansi_dark", background_color="default").highlight(diff) if coloured else Text(diff)
    text.rstrip()
    console.print(text, soft_wrap=True)


def _say(console: Console, text: str, style: str = "") -> None:
    """A line, whatever names and messages hold."""
    console.print(Text(one_line(text), style=style), soft_wrap=True)
