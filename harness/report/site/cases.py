"""Cases and their times, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from harness.comparison.values import shown
from harness.report.figures import duration, ratio
from harness.report.site.table import Cell, Heading, Row, Table, without_empty
from harness.report.site.texts import bytes_of
from harness.settings import DTYPE_NAMES
from harness.timed import timings_of
from harness.verdict import Case, CaseFailed, CasePassed, CaseTiming

# Rows of a page's tables of cases; the raw JSON has all of them.
MOST_CASES = 100
MOST_TIMES = 80

_SHORT = {name: short for short, name in DTYPE_NAMES.items()}


def dtype_of(case: Case) -> str:
    """The dtype of a case's inputs. Results that do not say it are of cases whose names do, where it is not the one
    that a case has by itself (`Case` in harness/problem/values.py)."""
    if case.dtype:
        return ", ".join(_SHORT.get(name, name) for name in case.dtype.split(", "))
    return next((short for short in _SHORT.values() if short in case.name.replace(",", " ").split()), "fp32")


def dtypes_of(cases: Sequence[Case]) -> list[str]:
    """All dtypes of the cases."""
    return sorted({name for case in cases for name in dtype_of(case).split(", ")})


def baselines_of(cases: Sequence[CasePassed]) -> list[str]:
    """Names of all baselines, in the order in which they occur."""
    return list(dict.fromkeys(name for case in cases if case.timing for name in case.timing.baselines))


def times_table(cases: Sequence[CasePassed]) -> Table:
    """A row for each time: the call's, the captured one's, and those of a training step's parts."""
    baselines = baselines_of(cases)
    headings = [
        Heading("case", "left"),
        Heading("shape", "left"),
        Heading("dtype", "left"),
        Heading("time"),
        Heading("95% interval"),
        Heading("of floor", title="the floor's time over the time"),
        *([Heading("eager")] if "eager" in baselines else []),
        *(Heading(f"vs {name}") for name in baselines),
        Heading("moves", title="bytes that a call must move"),
        Heading("", "left"),
    ]
    rows = [
        _times_row(case, shown(_name(case), part, kind), timing, baselines)
        for case in cases
        for part, kind, timing in timings_of(case)
    ]
    return without_empty(Table("Times of each case", headings, rows[:MOST_TIMES], sortable=True))


def _times_row(case: CasePassed, name: str, timing: CaseTiming, baselines: Sequence[str]) -> Row:
    eager = timing.baselines.get("eager")
    of_eager = [_time(eager.median_us if eager else None)] if "eager" in baselines else []
    said = ["launch-bound"] if timing.launch_bound else []
    if timing.device:
        said.append(f"device says {duration(timing.device.call_us)}")
    cells = [
        Cell(name),
        Cell(case.shape),
        Cell(dtype_of(case)),
        _time(timing.median_us),
        Cell(f"{duration(timing.interval_us[0])} to {duration(timing.interval_us[1])}", value=timing.interval_us[0]),
        Cell(f"{timing.floor_fraction:.0%}", value=timing.floor_fraction),
        *of_eager,
        *(_speedup(timing, name) for name in baselines),
        Cell(bytes_of(timing.bytes_min), value=timing.bytes_min),
        Cell(", ".join(said)),
    ]
    return Row(cells, kind="below" if name != _name(case) else "")


def _time(us: float | None) -> Cell:
    return Cell("–" if us is None else duration(us), value=us)


def _speedup(timing: CaseTiming, name: str) -> Cell:
    found = timing.baselines.get(name)
    if found is None:
        return Cell("–")
    kind = "" if not found.speedup.differs else "good" if found.speedup.ratio > 1 else "bad"
    return Cell(ratio(found.speedup), value=found.speedup.ratio, kind=kind)


def verdicts_table(cases: Sequence[Case]) -> Table:
    """A row for each case: whether it is right."""
    headings = [
        Heading("case", "left"),
        Heading("shape", "left"),
        Heading("dtype", "left"),
        Heading("verdict", "left"),
        Heading("error"),
        Heading("allowed"),
        Heading("error / eager's"),
        Heading("timed", "left"),
    ]
    rows = [_verdict_row(case) for case in cases[:MOST_CASES]]
    return without_empty(Table("Verdict on each case", headings, rows, sortable=True), keep=4)


def _verdict_row(case: Case) -> Row:
    word, kind = "not run", "unsure"
    if isinstance(case, CasePassed):
        word, kind = "pass", "good"
    elif isinstance(case, CaseFailed):
        word, kind = str(case.reason), "bad"
    error, allowed = getattr(case, "error", None), getattr(case, "tolerance", None)
    return Row(
        [
            Cell(_name(case)),
            Cell(case.shape),
            Cell(dtype_of(case)),
            Cell(word, kind=kind),
            _error(error),
            _error(allowed),
            _error(case.error_ratio),
            Cell("timed" if case.timing else ""),
        ]
    )


def _error(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.3g}", value=value)


def _name(case: Case) -> str:
    return case.name + (" (scaled)" if case.scaled else "")
