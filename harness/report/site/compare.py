"""The page that compares two submissions. A script reads which from the address (`compare.html#a=KEY&b=KEY`) and loads
what it shows from `data/`; without it the page has a list of neighbours on the boards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from harness.report.cases import timed_of
from harness.report.figures import with_interval
from harness.report.site import cases, sentences
from harness.report.site.fitting import fitted
from harness.report.site.gather import Gathered, Subject, subject_of
from harness.report.site.table import Cell, Heading, Row, Table
from harness.report.site.tested import Tested
from harness.report.site.texts import day, named, plain
from harness.store import Stored
from harness.store.rows import model_of, versions_of
from harness.verdict import CasePassed

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


def compare_page(gathered: Gathered, found: Sequence[Tested]) -> ComparePage:
    """Neighbours on the boards, and what can be chosen."""
    choices = [
        Choice(
            subject_of(board, entry).key, f"{named(board.problem)}, {named(board.device)}: {named(entry.submission)}"
        )
        for board in gathered.latest
        for entry in board.entries
    ]
    headings = [
        Heading("A", "left"),
        Heading("B", "left"),
        Heading("problem", "left"),
        Heading("device", "left"),
        Heading("B over A [95%]"),
        Heading("B is", "left"),
        Heading("case by case", "left"),
    ]
    rows = [row for one in found if one.pair.neighbours for row in _pair(one)][:MOST_PAIRS]
    pairs = Table("Neighbours on the boards", headings, rows, sortable=True)
    return ComparePage(pairs, choices[:MOST_CHOICES], max(0, len(choices) - MOST_CHOICES))


def _pair(found: Tested) -> Iterator[Row]:
    a, b = (subject.key for subject in found.pair.subjects)
    names, mean = [named(name) for name in found.pair.names], found.mean
    if mean is None:
        return
    kind = {"faster": "good", "slower": "bad"}.get(mean.difference, "")
    yield Row(
        [
            Cell(names[0], href=f"submissions/{a}.html"),
            Cell(names[1], href=f"submissions/{b}.html"),
            Cell(named(found.pair.problem)),
            Cell(named(found.pair.device)),
            Cell(with_interval(mean.speed.ratio, mean.speed.interval), value=mean.speed.ratio),
            Cell(mean.difference, kind=kind),
            Cell(" and ".join(names), href=f"compare.html#a={a}&b={b}"),
        ]
    )


def compared(subject: Subject, stored: Stored, text: str | None, partners: Sequence[str]) -> str:
    """What the script loads of one submission; `partners` are those that it was tested with."""
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
        "sha256": plain(named(evaluation.source_sha256)),
        "tested": partners,
        "cases": [_case(case) for case in timed_of(evaluation.cases)[: cases.MOST_CASES]],
        "source": plain(text) if text is not None and len(text) <= MOST_CHARACTERS else None,
    }
    return told(value)


def _case(case: CasePassed) -> dict[str, Any]:
    timing = case.timing
    assert timing is not None
    return {
        "name": plain(case.name),
        "us": timing.median_us,
        "captured_us": timing.captured.median_us if timing.captured else None,
    }


def told(value: dict[str, Any]) -> str:
    """A call with JSON, which is ASCII and which a script element may hold, too."""
    written = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    written = re.sub("[^\x00-\x7f]", _units, written)
    return f"kernelgate({written});\n"


def _units(found: re.Match[str]) -> str:
    """A character as JavaScript's units of 16 bits."""
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
