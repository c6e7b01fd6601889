"""The page that compares two submissions. A script reads which from the address (`compare.html#a=KEY&b=KEY`) and loads
what it compares from `data/`; without it the page has a list of neighbours on the boards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from harness.report.cases import timed_of
from harness.report.figures import with_interval
from harness.report.site import cases, sentences
from harness.report.site.fitting import fitted
from harness.report.site.gather import Gathered, Subject, subject_of
from harness.report.site.known import Known, known, known_of_case, known_of_mean
from harness.report.site.table import Cell, Heading, Row, Table
from harness.report.site.texts import day, named, plain
from harness.store import Board, Entry, Stored
from harness.store.rows import Z_95, model_of, versions_of
from harness.verdict import Accepted, CasePassed

# What the page has room for.
MOST_PAIRS = 100
MOST_CHOICES = 800

# A source that is longer is not compared line by line.
MOST_CHARACTERS = 300_000


@dataclass(frozen=True)
class Choice:
    """A submission that can be compared."""

    key: str
    words: str


@dataclass(frozen=True)
class ComparePage:
    """What the template shows."""

    pairs: Table
    choices: Sequence[Choice]
    choices_left_out: int
    z: float
    """Half the width of a 95% interval in standard errors."""


def compare_page(gathered: Gathered) -> ComparePage:
    """Neighbours on the boards, and what can be chosen."""
    placed = [(board, entry) for board in gathered.latest for entry in board.entries]
    choices = [
        Choice(
            subject_of(board, entry).key, f"{named(board.problem)}, {named(board.device)}: {named(entry.submission)}"
        )
        for board, entry in placed
    ]
    headings = [
        Heading("faster", "left"),
        Heading("than", "left"),
        Heading("problem", "left"),
        Heading("device", "left"),
        Heading("times as fast [95%]"),
        Heading("", "left"),
        Heading("case by case", "left"),
    ]
    rows = [row for board in gathered.latest for row in _neighbours(board)][:MOST_PAIRS]
    pairs = Table("Neighbours on the boards", headings, rows, sortable=True)
    return ComparePage(pairs, choices[:MOST_CHOICES], max(0, len(choices) - MOST_CHOICES), Z_95)


def _neighbours(board: Board) -> Iterator[Row]:
    """Each entry with the next, as far as their speedups are known."""
    found = [(entry, speed) for entry in board.entries if (speed := known_of_mean(entry.over_eager))]
    for (first, fast), (second, slow) in pairwise(found):
        yield _pair(board, first, fast, second, slow)


def _pair(board: Board, first: Entry, fast: Known, second: Entry, slow: Known) -> Row:
    a, b = subject_of(board, first).key, subject_of(board, second).key
    value, interval = fast.over(slow)
    differs, names = fast.differs(slow), [named(first.submission), named(second.submission)]
    return Row(
        [
            Cell(names[0], href=f"submissions/{a}.html"),
            Cell(names[1], href=f"submissions/{b}.html"),
            Cell(named(board.problem)),
            Cell(named(board.device)),
            Cell(with_interval(value, interval), value=value),
            Cell("faster" if differs else "no different", kind="good" if differs else ""),
            Cell(" and ".join(names), href=f"compare.html#a={a}&b={b}"),
        ]
    )


def compared(subject: Subject, stored: Stored, text: str | None) -> str:
    """What the script loads of one submission: a call with JSON, which is ASCII."""
    evaluation = fitted(stored.evaluation)
    device, environment = stored.evaluation.device, stored.environment
    value: dict[str, Any] = {
        "key": subject.key,
        "name": plain(evaluation.submission),
        "problem": plain(evaluation.problem),
        "device": plain(evaluation.device),
        "model": plain(named(model_of(device, environment))),
        "versions": plain(named(versions_of(device, environment))),
        "judge": plain(named(str(environment.get("judge") or "unknown"))),
        "date": plain(day(stored.date)),
        "verdict": plain(sentences.verdict(evaluation)),
        "mean": _mean(evaluation) if isinstance(evaluation, Accepted) else None,
        "cases": [_case(case) for case in timed_of(evaluation.cases)[: cases.MOST_CASES]],
        "source": plain(text) if text is not None and len(text) <= MOST_CHARACTERS else None,
    }
    return f"kernelgate({_ascii(value)});\n"


def _mean(evaluation: Accepted) -> list[float] | None:
    if evaluation.geomean_speedup is None or evaluation.geomean_interval is None:
        return None
    found = known(evaluation.geomean_speedup, evaluation.geomean_interval)
    return [found.log, found.variance] if found else None


def _case(case: CasePassed) -> dict[str, Any]:
    timing = case.timing
    assert timing is not None
    found = known_of_case(timing)
    return {
        "name": plain(case.name),
        "shape": plain(case.shape),
        "us": timing.median_us,
        "captured_us": timing.captured.median_us if timing.captured else None,
        "known": [found.log, found.variance] if found else None,
    }


def _ascii(value: dict[str, Any]) -> str:
    """JSON that a script element may hold, too."""
    written = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    return re.sub("[^\x00-\x7f]", _units, written)


def _units(found: re.Match[str]) -> str:
    """A character as JavaScript's units of 16 bits."""
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
