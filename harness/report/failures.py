"""Why a submission was not accepted, for a person at a terminal: the cause and its lines first, all else folded."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from harness.report.explanations import failing, why
from harness.report.frames import frame_lines
from harness.report.paragraphs import DEEPER, INDENT, print_paragraph
from harness.report.verdicts import STATUS_STYLE, cause_of, frame_of
from harness.verdict import Case, CaseFailed, CaseNotRun, CasePassed, CodeFrame, Errored, Printed, Rejected, status_of

# A line of a submission is shown with its number in so many columns at the most: what is wider is hard to read.
FRAME_WIDTH = 100


def print_failure(console: Console, evaluation: Rejected | Errored) -> None:
    """The verdict with its cause, the lines that it is about, what was printed, and the other cases in a few lines."""
    if evaluation.finding:
        _print_finding(console, evaluation, evaluation.finding)
    else:
        _print_cause(console, evaluation)
    print_printed(console, evaluation.printed)
    for line in [*folded(evaluation.cases), *_rule(evaluation)]:
        print_paragraph(console, Text(INDENT), line)


def print_cause(console: Console, evaluation: Rejected | Errored) -> None:
    """The cause and the lines that it is about, below a verdict that stands already."""
    cause = evaluation.finding or evaluation
    print_paragraph(console, Text(INDENT), f"{cause.reason}: {cause.message}")
    _print_details(console, evaluation)


def _print_cause(console: Console, evaluation: Rejected | Errored) -> None:
    print_paragraph(console, _head(evaluation), f"  {evaluation.submission}  {evaluation.reason}: {evaluation.message}")
    _print_details(console, evaluation)


def _print_finding(console: Console, evaluation: Rejected | Errored, finding: CaseFailed) -> None:
    """The defect in front of what it led to."""
    led_on = finding.reason != evaluation.reason
    of = f"{evaluation.reason}, for a defect that all detectors see: " if led_on else ""
    said = f"  {evaluation.submission}  {of}{finding.reason}: {finding.message}"
    print_paragraph(console, _head(evaluation), said)
    _print_details(console, evaluation)
    if led_on:
        print_paragraph(console, Text(INDENT), f"{evaluation.reason}: {evaluation.message}")


def _print_details(console: Console, evaluation: Rejected | Errored) -> None:
    """The lines, what was seen beside the first defect, and why the result is wrong."""
    _print_frame(console, frame_of(evaluation))
    _print_others(console, cause_of(evaluation))
    print_why(console, evaluation)


def print_why(console: Console, evaluation: Rejected | Errored) -> None:
    """Why the result is wrong, where it is known. Beside a defect that all detectors see there is no other cause:
    values that a race made fit many a cause."""
    if not evaluation.finding and (explained := why(evaluation)):
        print_paragraph(console, Text(INDENT), f"why: {explained}")


def _print_others(console: Console, failed: CaseFailed | None) -> None:
    """What was seen beside the first defect."""
    for said in failed.also if failed else ():
        print_paragraph(console, Text(INDENT), f"also {said}")


def _head(evaluation: Rejected | Errored) -> Text:
    status = status_of(evaluation)
    return Text.assemble((status.upper(), STATUS_STYLE[status]))


def _rule(evaluation: Rejected | Errored) -> Iterator[str]:
    """Which cases fail, where there is more to say than that all do."""
    some_pass = any(isinstance(case, CasePassed) for case in evaluation.cases)
    if some_pass and (said := failing(evaluation)):
        yield f"cases: {said}"


def repeat_of(evaluation: Rejected | Errored) -> str:
    """The command that shows the cause again; empty where no case was judged."""
    failed = cause_of(evaluation)
    return failed.repeat if failed else ""


def _print_frame(console: Console, frame: CodeFrame | None) -> None:
    if frame:
        for line in frame_lines(frame, min(console.width, FRAME_WIDTH) - len(DEEPER)):
            console.print(Text(DEEPER).append_text(line), soft_wrap=True)


def print_printed(console: Console, printed: Printed | None) -> None:
    """What the submission printed, each line behind a bar: none can look like one of ours."""
    if not printed:
        return
    where = f" in '{printed.case}'" if printed.case else ""
    many = (
        f" (the last {len(printed.lines)} of {len(printed.lines) + printed.left_out:,} lines; --show-output shows all)"
    )
    console.print(Text(f"{INDENT}it printed{where}{many if printed.left_out else ''}:"), soft_wrap=True)
    for line in printed.lines:
        room = console.width - len(DEEPER) - 2
        shown = line if len(line) <= room else line[: room - 1] + "…"
        console.print(Text.assemble(DEEPER, ("│ ", "dim"), shown), soft_wrap=True)


def folded(cases: Sequence[Case]) -> Iterator[str]:
    """Equal failures in one line, with how many they are and the smallest; then how many passed. Nothing for one case
    alone."""
    if len(cases) < 2:
        return
    failed = [case for case in cases if isinstance(case, CaseFailed)]
    if len(failed) == len(cases) and len({case.reason for case in failed}) == 1:
        yield f"cases: all {len(cases)} fail so, the smallest is {_smallest(failed)}; -v shows every case"
        return
    for reason in dict.fromkeys(case.reason for case in failed):
        yield _together(reason, [case for case in failed if case.reason == reason])
    counts = [
        (sum(isinstance(case, CasePassed) for case in cases), "passed"),
        (sum(isinstance(case, CaseNotRun) for case in cases), "not run"),
    ]
    if others := ", ".join(f"{count} {what}" for count, what in counts if count):
        yield f"{others}; -v shows every case"
    elif failed:
        yield "none passed; -v shows every case"


def _together(reason: str, cases: Sequence[CaseFailed]) -> str:
    which = _smallest(cases)
    return f"{reason} in {len(cases)} cases, the smallest {which}" if len(cases) > 1 else f"{reason} in {which}"


def _smallest(cases: Sequence[CaseFailed]) -> str:
    smallest = min(cases, key=lambda case: _elements(case.shape))
    return f"'{smallest.name}' ({smallest.shape})"


def _elements(shape: str) -> int:
    """How many elements a case's inputs have, by their forms as text."""
    return sum(math.prod(map(int, re.findall(r"\d+", part))) for part in re.split(r"[,;+]", shape))
