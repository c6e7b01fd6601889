"""What a session shows: the verdict first, then what changed, then the cause."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.text import Text

from harness.report.failures import print_cause
from harness.report.formats import terminal
from harness.report.paragraphs import INDENT, print_paragraph
from harness.report.verdicts import STATUS_STYLE, accepted_summary
from harness.report.view import Color, View, console
from harness.report.workflow import no_commands
from harness.verdict import SCHEMA, Accepted, CaseFailed, Evaluation, Results, status_of
from harness.watch.changes import Change, Turn, largest_error_ratio

_STYLE = {Turn.BETTER: "green", Turn.WORSE: "red", Turn.OTHER: "yellow", Turn.SAME: "dim"}

_CLEAR_LINE = "\r\x1b[2K"


class Screen:
    """Standard output, where a verdict is a block of lines."""

    def __init__(self, color: Color) -> None:
        self._color = color
        self._judged = ""
        """What a terminal's last line says is judged."""

    def begin(self, name: str) -> None:
        """Have a terminal's last line say what is judged, until its verdict is shown."""
        if sys.stdout.isatty():
            self.clear()
            print(f"judging {name} …", end="", flush=True)
            self._judged = name

    def clear(self) -> None:
        """Take that line away."""
        if self._judged:
            print(_CLEAR_LINE, end="", flush=True)
            self._judged = ""

    def _page(self) -> Console:
        """Anew each time: a terminal's window may have another width now."""
        self.clear()
        return console(sys.stdout, self._color)

    def say(self, text: str) -> None:
        """A line that is no verdict."""
        judged = self._judged
        with no_commands(sys.stdout):
            print_paragraph(self._page(), Text(), text, "dim")
        sys.stdout.flush()
        if judged:
            self.begin(judged)

    def show(self, evaluation: Evaluation, seconds: float, found: Sequence[Change], *, names_problem: bool) -> None:
        """A verdict with the seconds since the file was saved, and what changed since the last."""
        page = self._page()
        with no_commands(sys.stdout):
            page.print()
            print_paragraph(page, *_head(evaluation, seconds, names_problem))
            for change in found:
                print_paragraph(page, Text(INDENT), f"{change.turn}: {change.text}", _STYLE[change.turn])
            if not isinstance(evaluation, Accepted):
                print_cause(page, evaluation)
        sys.stdout.flush()

    def show_unjudged(self, name: str, seconds: float, said: Sequence[str]) -> None:
        """What a run said that came to no verdict."""
        page = self._page()
        with no_commands(sys.stdout):
            page.print()
            print_paragraph(page, Text.assemble(("NOT JUDGED", STATUS_STYLE["error"])), f"  {name}  {seconds:.1f} s")
            for line in said:
                print_paragraph(page, Text(INDENT), line)
        sys.stdout.flush()

    def show_report(self, evaluation: Evaluation) -> None:
        """The whole report of the cases that fail."""
        page = self._page()
        is_colored = page.color_system is not None and not page.no_color
        failed = [case for case in evaluation.cases if isinstance(case, CaseFailed)]
        results = Results(
            schema=SCHEMA, environment={}, evaluations=[msgspec.structs.replace(evaluation, cases=failed)]
        )
        view = View(verbose=True, checked=True, width=page.width, colored=is_colored, ranks=False)
        with no_commands(sys.stdout):
            sys.stdout.write("\n" + terminal.render(results, view))
        sys.stdout.flush()


def _head(evaluation: Evaluation, seconds: float, names_problem: bool) -> tuple[Text, str]:
    status = status_of(evaluation)
    name = f"{evaluation.problem} · {evaluation.submission}" if names_problem else evaluation.submission
    head = Text.assemble((status.upper(), STATUS_STYLE[status]))
    return head, f"  {name}  {_summary(evaluation)}; {_took(evaluation, seconds)}"


def _summary(evaluation: Evaluation) -> str:
    if isinstance(evaluation, Accepted):
        error = largest_error_ratio(evaluation)
        return accepted_summary(evaluation) + ("" if error is None else f"; error at most {error:.2f} × eager's")
    failed = sum(isinstance(case, CaseFailed) for case in evaluation.cases)
    where = f", {failed} of {len(evaluation.cases)} cases fail" if failed else ""
    return f"{evaluation.reason}{where}"


def _took(evaluation: Evaluation, seconds: float) -> str:
    build = evaluation.build
    of_build = f", of which the build {build.seconds:.1f} s" if build and not build.cached else ""
    return f"{seconds:.1f} s{of_build}"
