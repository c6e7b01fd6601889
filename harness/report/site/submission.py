"""The page of a submission: a source on one problem and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records import KernelResources
from harness.report.cases import timed_of
from harness.report.figures import mean_of
from harness.report.site import cases, names, sentences
from harness.report.site.charts.picture import Chart, Key
from harness.report.site.charts.samples import KEYS, samples
from harness.report.site.charts.sizes import roofline, times_by_size
from harness.report.site.charts.speedups import speedups
from harness.report.site.charts.trend import trend
from harness.report.site.fitting import fitted
from harness.report.site.gather import Gathered, Subject
from harness.report.site.source import MOST_BYTES, Source, findings_of, source_of
from harness.report.site.table import Cell, Heading, Row, Table, without_empty
from harness.report.site.texts import named, shortened
from harness.report.verdicts import cause_of
from harness.report.words import as_sentences, conditions
from harness.store import Glance, Stored
from harness.store.pairs import SHOWN_DIGITS
from harness.timed import timings_of
from harness.verdict import CaseFailed, CasePassed, Evaluation, status_of

# What a page has room for, of what there may be any number of.
MOST_NOTES = 60
MOST_NOTE_CHARACTERS = 500
MOST_HISTORY = 60
MOST_KERNELS = 60
MOST_CONDITIONS = 60
MOST_ENVIRONMENT = 50


@dataclass(frozen=True)
class Link:
    """Words that lead to another page."""

    text: str
    href: str


@dataclass(frozen=True)
class SubmissionPage:
    """What the template shows."""

    key: str
    evaluation: Evaluation
    stored: Stored
    status: str
    verdict: str
    standing: str
    board: str
    problem_href: str
    failure: CaseFailed | None
    message: str
    """The whole reason, where it has several lines."""
    notes: Sequence[str]
    notes_left_out: int
    times: Table | None
    verdicts: Table
    cases_left_out: int
    plots: Sequence[Chart]
    timed_cases: int
    samples: Sequence[Chart]
    keys_of_samples: Sequence[Key]
    history: Table
    history_left_out: int
    source: Source | None
    kernels: Table | None
    spilling: int
    """Kernels that spill registers."""
    seen: Sequence[str]
    environment: Sequence[tuple[str, str]]
    related: Sequence[Link]


def submission_page(
    gathered: Gathered, subject: Subject, stored: Stored, text: str | None, room: int = MOST_BYTES
) -> SubmissionPage:
    """The page of the latest evaluation, `stored`; `text` is the source where it is kept, for which there is `room` in
    bytes."""
    evaluation, name = fitted(stored.evaluation), stored.evaluation.submission
    timed = timed_of(evaluation.cases)
    of_name = gathered.of_names[subject.problem, subject.device, name]
    history = sorted({g.digest: g for g in [*of_name, *gathered.of_subjects[subject]]}.values(), key=_date)
    plots = [speedups(timed), times_by_size(timed, "submission"), roofline(timed, "submission")]
    return SubmissionPage(
        key=subject.key,
        evaluation=evaluation,
        stored=stored,
        status=status_of(evaluation),
        verdict=sentences.verdict(evaluation),
        standing=sentences.standing(gathered.standing_of(subject), evaluation),
        board=_board(gathered, subject),
        problem_href=f"../problems/{names.problem_key(subject.problem)}.html",
        failure=cause_of(evaluation),
        message=_several_lines(evaluation),
        notes=[shortened(text, MOST_NOTE_CHARACTERS) for text in as_sentences(evaluation.notes[:MOST_NOTES])],
        notes_left_out=max(0, len(evaluation.notes) - MOST_NOTES),
        times=cases.times_table(timed) if timed else None,
        verdicts=cases.verdicts_table(evaluation.cases),
        cases_left_out=max(0, len(evaluation.cases) - cases.MOST_CASES),
        plots=[plot for plot in (*plots, trend(history, subject.source_sha256)) if plot],
        timed_cases=len(timed),
        samples=samples(timed),
        keys_of_samples=KEYS,
        history=_history(history, subject),
        history_left_out=max(0, len(history) - MOST_HISTORY),
        source=None if text is None else source_of(text, findings_of(evaluation, f"{name}.py"), room),
        kernels=_kernels(evaluation),
        spilling=sum(kernel.spilled_bytes > 0 for kernel in _built(evaluation)),
        seen=_seen(timed)[:MOST_CONDITIONS],
        environment=_flat(stored.environment)[:MOST_ENVIRONMENT],
        related=[
            Link(f"{named(other.problem)}, {named(other.device)}", f"{other.key}.html")
            for other in gathered.related(subject)[:20]
        ],
    )


def _date(glance: Glance) -> str:
    return glance.date


def _board(gathered: Gathered, subject: Subject) -> str:
    found = gathered.standing_of(subject)
    return f"{named(found.board.model)}, {named(found.board.versions)}" if found else ""


def _several_lines(evaluation: Evaluation) -> str:
    message = evaluation.message
    return shortened(message) if "\n" in message or len(message) > sentences.LONGEST_CHARACTERS else ""


def _history(evaluations: Sequence[Glance], subject: Subject) -> Table:
    """The latest first."""
    headings = [
        Heading("date", "left"),
        Heading("verdict", "left"),
        Heading("over eager [95%]"),
        Heading("source", "left"),
        Heading("device", "left"),
        Heading("judge", "left"),
        Heading("seed", "left"),
        Heading("evaluation", "left"),
    ]
    rows = [_history_row(glance, subject) for glance in list(reversed(evaluations))[:MOST_HISTORY]]
    return without_empty(Table("Evaluations, the latest first", headings, rows, sortable=True))


def _history_row(glance: Glance, subject: Subject) -> Row:
    kind = {"accepted": "good", "rejected": "bad"}.get(glance.status, "unsure")
    mean = glance.over_eager
    is_other = glance.source_sha256 != subject.source_sha256
    href = f"{names.submission_key(glance.source_sha256, glance.problem, glance.device)}.html" if is_other else ""
    return Row(
        [
            Cell(glance.date[:16].replace("T", " ")),
            Cell(glance.reason or glance.status, kind=kind),
            Cell(mean_of(mean), value=mean.value if mean else None),
            Cell(glance.source_sha256[:SHOWN_DIGITS], href=href, kind="digest"),
            Cell(named(glance.model)),
            Cell(named(glance.judge) or "unknown"),
            Cell(glance.seed),
            Cell(glance.digest[:SHOWN_DIGITS], kind="digest"),
        ]
    )


def _kernels(evaluation: Evaluation) -> Table | None:
    """What the compiler said of each kernel."""
    built = _built(evaluation)
    if not built:
        return None
    headings = [
        Heading("kernel", "left"),
        Heading("registers of a thread"),
        Heading("shared bytes of a block"),
        Heading("spilled, stored"),
        Heading("spilled, loaded"),
    ]
    rows = [
        Row(
            [
                Cell(shortened(kernel.kernel, 200)),
                Cell(f"{kernel.registers:,}", value=kernel.registers),
                Cell(f"{kernel.shared_bytes:,}", value=kernel.shared_bytes),
                _spilled(kernel.spill_store_bytes),
                _spilled(kernel.spill_load_bytes),
            ]
        )
        for kernel in built[:MOST_KERNELS]
    ]
    return Table("Registers and spills of each kernel", headings, rows, sortable=True)


def _built(evaluation: Evaluation) -> Sequence[KernelResources]:
    return evaluation.build.kernels if evaluation.build else ()


def _spilled(count: int) -> Cell:
    return Cell(f"{count:,} B", value=count, kind="bad" if count else "")


def _seen(timed: Sequence[CasePassed]) -> list[str]:
    """In which state the GPU was, case by case."""
    return [
        f"{', '.join(filter(None, (case.name, part, kind)))}: {conditions(timing.conditions)}"
        for case in timed
        for part, kind, timing in timings_of(case)
        if timing.conditions
    ]


def _flat(environment: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Names with values; those of a table inside stand behind its name."""
    found: list[tuple[str, str]] = []
    for name, value in environment.items():
        if isinstance(value, Mapping) and len(before) < 200:
            found += _flat(value, f"{before}{name}, ")
        elif value is not None:
            words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append((shortened(f"{before}{name}", 100), shortened(words, 600)))
    return found
