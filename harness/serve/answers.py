"""What a program learns of a submission: a line of less than 4 kB, whatever the submission or its report holds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from harness.lanes.lanes import Outcome
from harness.reasons import Reason
from harness.report.explanations import why
from harness.report.verdicts import cause_of, frame_of
from harness.serve.requests import Id
from harness.verdict import (
    Accepted,
    CaseFailed,
    CaseNotRun,
    CasePassed,
    CodeFrame,
    Evaluation,
    Geomeans,
    Mark,
    status_of,
)

MOST_BYTES = 4000

# Bytes of JSON that texts may take, in the order in which they are tried.
_MESSAGES = (1200, 600, 200)
_WHY, _NAME, _CODE, _LABEL = 300, 120, 160, 40
_MOST_DIMENSIONS = 12


class Line(Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Any line of standard output."""


class Began(Line, frozen=True, kw_only=True, tag="stage"):
    """A stage of a request begins."""

    id: Id
    stage: str


class Complaint(Line, frozen=True, kw_only=True, tag="error"):
    """A line of standard input asks for nothing that can be done."""

    message: str
    id: Id | None = None


class Site(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the submission, `line` from 1; `does` is what happens there, such as "writes"."""

    line: int
    text: str
    does: str = ""


class Element(Struct, frozen=True, kw_only=True):
    """The element that is furthest from what it should be; infinite and NaN figures are null."""

    case: str
    output: int
    index: list[int]
    got: float | None
    expected: float | None


class Counted(Struct, frozen=True, kw_only=True):
    """Cases by what became of them."""

    passed: int
    failed: int
    not_run: int


class Ratio(Struct, frozen=True, kw_only=True):
    """A speedup with its 95% interval."""

    ratio: float
    low: float
    high: float


class Speedups(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Geometric means over the timed cases; left out where there is none."""

    over_eager: Ratio | None = None
    over_best: Ratio | None = None
    captured_over_eager: Ratio | None = None
    captured_over_best: Ratio | None = None


class Floor(Struct, frozen=True, kw_only=True):
    """How near a call is to the least time that its bytes need: 1 is there."""

    first_case: str
    first_us: float
    first_fraction: float
    mean_fraction: float
    """Geometric, over the timed cases."""


class Counters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the compiler said of all kernels, and what the emulator saw over all cases."""

    registers: int = 0
    """The most of any kernel."""
    spilled_bytes: int = 0
    launches: int = 0
    global_bytes: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    bank_conflicts: int = 0


class Answer(Line, frozen=True, kw_only=True, tag="answer"):
    """What became of a request; fields that make no sense for it are left out."""

    id: Id
    status: str
    """accepted, rejected, error (nothing is said about the submission) or cancelled."""
    stage: str
    """The one that it ended in; done for what is accepted."""
    reason: str | None = None
    message: str = ""
    finding: str | None = None
    """The defect behind it that the emulator's detectors saw; the message begins with it."""
    why: str = ""
    """What a wrong result is as if, where it is known."""
    problem: str = ""
    submission: str = ""
    device: str = ""
    seed: int | None = None
    judged_s: float | None = None
    build_s: float | None = None
    cases: Counted | None = None
    line: Site | None = None
    race: list[Site] = []
    """Both of its accesses, or the one that is known."""
    worst: Element | None = None
    speedup: Speedups | None = None
    floor: Floor | None = None
    counters: Counters | None = None


def encode(line: Line) -> bytes:
    """With its line end. What is too long of an answer is its message."""
    encoded = msgspec.json.encode(line)
    for most in _MESSAGES:
        if len(encoded) < MOST_BYTES or not isinstance(line, Answer | Complaint):
            break
        encoded = msgspec.json.encode(msgspec.structs.replace(line, message=clipped(line.message, most)))
    return encoded + b"\n"


def cancelled(of: Id, stage: str) -> Answer:
    return Answer(id=of, status="cancelled", stage=stage)


def answer(of: Id, outcome: Outcome) -> Answer:
    """What a program learns of an outcome."""
    evaluation = outcome.evaluation
    cause = cause_of(evaluation)
    sites = _sites(frame_of(evaluation))
    is_race = Reason.DATA_RACE in (evaluation.reason, cause.reason if cause else None)
    return Answer(
        id=of,
        status=status_of(evaluation),
        stage=outcome.stage,
        reason=evaluation.reason,
        message=clipped(_message(evaluation, cause), _MESSAGES[0]),
        finding=evaluation.finding.reason if evaluation.finding else None,
        why="" if evaluation.finding else clipped(why(evaluation), _WHY),
        problem=clipped(evaluation.problem, _NAME),
        submission=clipped(evaluation.submission, _NAME),
        device=evaluation.device,
        seed=evaluation.seed,
        judged_s=round(outcome.judged_s, 3),
        build_s=evaluation.build.seconds if evaluation.build and not evaluation.build.cached else None,
        cases=_counted(evaluation),
        line=sites[-1] if sites else None,
        race=sites[:2] if is_race else [],
        worst=_worst(cause),
        speedup=_speedups(evaluation) if isinstance(evaluation, Accepted) else None,
        floor=_floor(evaluation),
        counters=_counters(evaluation),
    )


def clipped(text: str, most: int) -> str:
    """As much of the text as takes `most` bytes of JSON, with an ellipsis where that is not all."""
    if _size(text) <= most:
        return text
    low, high = 0, min(len(text), most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(text[:middle]) + len("…".encode()) <= most else (low, middle - 1)
    return text[:low] + "…"


def _size(text: str) -> int:
    return len(msgspec.json.encode(text))


def _message(evaluation: Evaluation, cause: CaseFailed | None) -> str:
    """What all detectors saw goes before what it led to."""
    if evaluation.finding and evaluation.finding is cause and cause.reason != evaluation.reason:
        return f"{cause.reason}: {cause.message} ({evaluation.message})"
    return cause.message if evaluation.finding and cause else evaluation.message


def _counted(evaluation: Evaluation) -> Counted:
    kinds = [sum(isinstance(case, kind) for case in evaluation.cases) for kind in (CasePassed, CaseFailed, CaseNotRun)]
    return Counted(passed=kinds[0], failed=kinds[1], not_run=kinds[2])


def _sites(frame: CodeFrame | None) -> list[Site]:
    if not frame:
        return []
    texts = {line.number: line.text for line in frame.lines}
    return [_site(mark, texts.get(mark.line, "")) for mark in frame.marks]


def _site(mark: Mark, text: str) -> Site:
    return Site(line=mark.line, text=clipped(text.strip(), _CODE), does=clipped(mark.label, _LABEL))


def _worst(cause: CaseFailed | None) -> Element | None:
    if not cause or not cause.worst:
        return None
    worst = cause.worst
    return Element(
        case=clipped(cause.name, _NAME),
        output=worst.output,
        index=worst.index[:_MOST_DIMENSIONS],
        got=worst.got,
        expected=worst.expected,
    )


def _speedups(accepted: Accepted) -> Speedups | None:
    over_eager, over_best = _ratios(accepted)
    captured_over_eager, captured_over_best = _ratios(accepted.captured) if accepted.captured else (None, None)
    found = Speedups(
        over_eager=over_eager,
        over_best=over_best,
        captured_over_eager=captured_over_eager,
        captured_over_best=captured_over_best,
    )
    return None if found == Speedups() else found


def _ratios(means: Accepted | Geomeans) -> tuple[Ratio | None, Ratio | None]:
    """Over eager, and over the fastest baseline."""
    return (
        _ratio(means.geomean_speedup, means.geomean_interval),
        _ratio(means.geomean_speedup_over_best, means.geomean_over_best_interval),
    )


def _ratio(ratio: float | None, interval: tuple[float, float] | None) -> Ratio | None:
    return Ratio(ratio=ratio, low=interval[0], high=interval[1]) if ratio is not None and interval else None


def _floor(evaluation: Evaluation) -> Floor | None:
    timed = [(case.name, case.timing) for case in evaluation.cases if isinstance(case, CasePassed) and case.timing]
    if not timed:
        return None
    name, first = timed[0]
    return Floor(
        first_case=clipped(name, _NAME),
        first_us=first.median_us,
        first_fraction=first.floor_fraction,
        mean_fraction=_geometric([timing.floor_fraction for _, timing in timed]),
    )


def _geometric(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if all(value > 0 for value in values) else 0.0


def _counters(evaluation: Evaluation) -> Counters | None:
    kernels = evaluation.build.kernels if evaluation.build else []
    counts = [count for case in evaluation.cases if isinstance(case, CasePassed) for count in case.counts]
    found = Counters(
        registers=max((kernel.registers for kernel in kernels), default=0),
        spilled_bytes=_sum(kernel.spilled_bytes for kernel in kernels),
        launches=_sum(count.launches for count in counts),
        global_bytes=_sum(count.global_read_bytes + count.global_write_bytes for count in counts),
        sectors=_sum(count.sectors for count in counts),
        ideal_sectors=_sum(count.ideal_sectors for count in counts),
        bank_conflicts=_sum(count.bank_conflicts for count in counts),
    )
    return None if found == Counters() else found


def _sum(values: Iterable[int]) -> int:
    """At most what all readers of JSON hold."""
    return min(sum(values), 2**63 - 1)
